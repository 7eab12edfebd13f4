"""One end of a connection, with plain sockets: ROLE ADDRESS PORT KEY=VALUE..."""
import socket
import sys
import time

role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = {key: int(value) for key, value in (word.split("=") for word in sys.argv[4:])}
sends = bool(options.get("sends"))
end = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
SO_MAX_PACING_RATE = 47
for key, level, option in [
    ("send_buffer", socket.SOL_SOCKET, socket.SO_SNDBUF),
    ("receive_buffer", socket.SOL_SOCKET, socket.SO_RCVBUF),
    ("pacing", socket.SOL_SOCKET, SO_MAX_PACING_RATE),
    ("mss", socket.IPPROTO_TCP, socket.TCP_MAXSEG),
    ("nodelay", socket.IPPROTO_TCP, socket.TCP_NODELAY),
]:
    if key in options:
        end.setsockopt(level, option, options[key])
if role == "server":
    end.bind((address, port))
    end.listen(1)
    flow = end.accept()[0]
else:
    end.connect((address, port))
    flow = end

size, rate, left = options["message"], options.get("rate"), options.get("bytes")
begun, moved = time.monotonic(), 0


def wait():
    """Sleep until the bytes that were moved are due."""
    due = begun + moved / rate - time.monotonic()
    if due > 0:
        time.sleep(due)


if sends:
    message = bytes(size)
    while left is None or left > 0:
        piece = message if left is None or left >= size else message[:left]
        flow.sendall(piece)
        left = None if left is None else left - len(piece)
        if rate:
            moved += size
            wait()
    flow.shutdown(socket.SHUT_WR)
    flow.recv(1)
else:
    while data := flow.recv(size):
        if rate:
            moved += len(data)
            wait()
