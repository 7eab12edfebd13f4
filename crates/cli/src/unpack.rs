//! Compressed files: gzip and zstd, told by their first bytes, unpacked as they are read.

use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The bytes in a compressed file that begins so; `Err` with the file itself if it is none.
pub(crate) fn unpacked(
    head: &[u8],
    bytes: Box<dyn Read + Send>,
) -> Result<Box<dyn Read + Send>, Box<dyn Read + Send>> {
    let source = Source { inner: bytes, count: 0, has_failed: false };
    let decoder = match head {
        [0x1f, 0x8b, 8, ..] => Decoder::Gzip(MultiGzDecoder::new(source)),
        // The first frame may be one without content.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let source = BufReader::new(source);
            Decoder::Zstd(ZstdFrames { source, decoder: Box::default() })
        }
        _ => return Err(source.inner),
    };
    Ok(Box::new(Unpacked { decoder, bytes: 0, free_bytes: FREE_BYTES }))
}

/// The bytes in a compressed file, up to a limit for files made to unpack without end.
struct Unpacked<R: Read> {
    decoder: Decoder<R>,
    /// Bytes given so far.
    bytes: u64,
    /// Bytes from which on the limit holds.
    free_bytes: u64,
}

enum Decoder<R: Read> {
    Gzip(MultiGzDecoder<Source<R>>),
    Zstd(ZstdFrames<Source<R>>),
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, source) = match &mut self.decoder {
            Decoder::Gzip(decoder) => (decoder.read(buffer), decoder.get_ref()),
            Decoder::Zstd(frames) => (frames.read(buffer), frames.source.get_ref()),
        };
        let is_damage = !source.has_failed;
        let read = match read {
            Err(error) if is_damage && error.kind() != io::ErrorKind::Interrupted => {
                return Err(damage(&error));
            }
            read => read?,
        };
        self.bytes += read as u64;
        if self.bytes > self.free_bytes && self.bytes / MAX_RATIO > source.count {
            let why = format!("it unpacks to more than {MAX_RATIO} times its size");
            return Err(io::Error::other(why));
        }
        Ok(read)
    }
}

fn damage(error: &dyn std::error::Error) -> io::Error {
    let why = format!("its compressed data are damaged or end early: {error}");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Counts what is read of the file itself.
struct Source<R> {
    inner: R,
    count: u64,
    has_failed: bool,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        self.has_failed |= read.is_err();
        self.count += *read.as_ref().unwrap_or(&0) as u64;
        read
    }
}

/// The frames of a zstd file (RFC 8878, 3), one after the other.
struct ZstdFrames<R> {
    source: BufReader<R>,
    decoder: Box<FrameDecoder>,
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
                continue;
            }
            let told = self.decoder.get_checksum_from_data();
            if told.is_some() && told != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("a checksum is wrong"));
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {}
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut content = (&mut self.source).take(length.into());
                    io::copy(&mut content, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Captures of one repeated packet are packed to a thousandth, too, but are seldom so long.
const FREE_BYTES: u64 = 64 << 30;
const MAX_RATIO: u64 = 1000;

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn reader(file: &[u8]) -> Box<dyn Read + Send> {
        let source = Box::new(Cursor::new(file.to_vec()));
        unpacked(file, source).unwrap_or_else(|plain| plain)
    }

    fn read(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader(file).read_to_end(&mut bytes).map(|_| bytes)
    }

    fn numbers() -> Vec<u8> {
        (0..90_000_u32).flat_map(|number| (number / 3).to_le_bytes()).collect()
    }

    #[test]
    fn files_of_several_parts_are_unpacked_whole() {
        let plain = numbers();
        let (one, other) = plain.split_at(100_001);
        assert_eq!(read(&plain).unwrap(), plain);
        assert_eq!(read(&[gzip(one), gzip(other)].concat()).unwrap(), plain);
        // A frame without content, of five bytes.
        let skipped = [0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5];
        let frames = [&skipped[..], &zstd(one), &skipped, &zstd(other)].concat();
        assert_eq!(read(&frames).unwrap(), plain);
    }

    #[test]
    fn damage_is_told_from_a_failure_to_read() {
        for packed in [gzip(&numbers()), zstd(&numbers())] {
            let cut = read(&packed[..packed.len() * 2 / 3]).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::InvalidData, "{cut}");
            let mut changed = packed.clone();
            let middle = packed.len() / 2;
            changed[middle..middle + 9].fill(0xa5);
            let changed = read(&changed).unwrap_err();
            assert_eq!(changed.kind(), io::ErrorKind::InvalidData, "{changed}");

            struct Refuses;
            impl Read for Refuses {
                fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                    Err(io::ErrorKind::ConnectionReset.into())
                }
            }
            let source = Box::new(Cursor::new(packed[..300].to_vec()).chain(Refuses));
            let mut reader = unpacked(&packed, source).unwrap_or_else(|plain| plain);
            let error = io::copy(&mut reader, &mut io::sink()).unwrap_err();
            assert!(!error.to_string().contains("damaged"), "{error}");
        }
    }

    #[test]
    fn what_unpacks_without_end_is_refused() {
        // 64 blocks of 128 KiB zeros, each in four bytes.
        let block = [2, 0, 0x10, 0];
        let bomb = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x38], &block.repeat(64)[..], &[3, 0, 0x10, 0]];
        let refused = |free_bytes| {
            let source = Source { inner: &bomb.concat()[..], count: 0, has_failed: false };
            let source = BufReader::new(source);
            let decoder = Decoder::Zstd(ZstdFrames { source, decoder: Box::default() });
            io::copy(&mut Unpacked { decoder, bytes: 0, free_bytes }, &mut io::sink())
        };
        assert_eq!(refused(16 << 20).unwrap(), 65 << 17);
        let error = refused(1 << 20).unwrap_err().to_string();
        assert!(error.contains("more than 1000 times its size"), "{error}");
    }
}
