//! A program as text, for people.

use std::fmt::Write;

use linerate_qos::program::Program;

/// One line for each instruction, with numbers for jumps.
pub(crate) fn listing(program: &Program) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < program.instructions.len() {
        let is_pair = program.instructions[at][0] == 0x18;
        let line = if is_pair { pair(program, at) } else { line(at, program.instructions[at]) };
        let written = writeln!(text, "{at:5}: {line}");
        written.expect("a string takes any text");
        at += if is_pair { 2 } else { 1 };
    }
    text
}

/// A load of 64 bits.
fn pair(program: &Program, at: usize) -> String {
    let (low, high) = (program.instructions[at], program.instructions[at + 1]);
    let to = registers(low).0;
    let mut references = program.references.iter();
    let Some(reference) = references.find(|reference| reference.instruction == at) else {
        let [low, high] = [low, high].map(|half| u64::from(immediate(half) as u32));
        return format!("r{to} = {:#x}", high << 32 | low);
    };
    let name = program.maps[reference.map].name;
    match reference.value_offset {
        None => format!("r{to} = map {name}"),
        Some(offset) => format!("r{to} = {name} + {offset}"),
    }
}

fn line(at: usize, instruction: [u8; 8]) -> String {
    let code = instruction[0];
    let (to, from) = registers(instruction);
    let offset = i16::from_ne_bytes([instruction[2], instruction[3]]);
    let number = immediate(instruction);
    let target = |distance: i64| at as i64 + 1 + distance;
    match code & 7 {
        // BPF_LDX, BPF_ST, BPF_STX
        1 => format!("r{to} = {}[r{from}{offset:+}]", size(code)),
        2 => format!("{}[r{to}{offset:+}] = {number}", size(code)),
        3 if code & 0xe0 == 0xc0 => {
            let what = if number == 0xf1 { "exchange if r0" } else { "exchange" };
            format!("{}[r{to}{offset:+}] {what} r{from}", size(code))
        }
        3 => format!("{}[r{to}{offset:+}] = r{from}", size(code)),
        5 if code == 0x05 => format!("goto {}", target(offset.into())),
        6 if code == 0x06 => format!("goto {}", target(number.into())),
        5 if code == 0x85 => format!("call {number}"),
        5 if code == 0x95 => "exit".to_owned(),
        class @ (5 | 6) => {
            let width = if class == 5 { "r" } else { "w" };
            let right = operand(code, width, from, number);
            let relation = RELATIONS[usize::from(code >> 4)];
            format!("if {width}{to} {relation} {right} goto {}", target(offset.into()))
        }
        class => {
            let width = if class == 7 { "r" } else { "w" };
            match code >> 4 {
                0x8 => format!("{width}{to} = -{width}{to}"),
                0xd => format!("r{to} = be{number} r{to}"),
                operation => {
                    let right = operand(code, width, from, number);
                    format!("{width}{to} {} {right}", OPERATIONS[usize::from(operation)])
                }
            }
        }
    }
}

fn operand(code: u8, width: &str, from: u8, number: i32) -> String {
    match code & 8 {
        0 => format!("{number:#x}"),
        _ => format!("{width}{from}"),
    }
}

fn registers(instruction: [u8; 8]) -> (u8, u8) {
    let (low, high) = (instruction[1] & 15, instruction[1] >> 4);
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

fn immediate(instruction: [u8; 8]) -> i32 {
    let [.., a, b, c, d] = instruction;
    i32::from_ne_bytes([a, b, c, d])
}

fn size(code: u8) -> &'static str {
    match code & 0x18 {
        0x00 => "u32",
        0x08 => "u16",
        0x10 => "u8",
        _ => "u64",
    }
}

const RELATIONS: [&str; 16] =
    ["", "==", ">", ">=", "&", "!=", "s>", "s>=", "", "", "<", "<=", "s<", "s<=", "", ""];
const OPERATIONS: [&str; 16] =
    ["+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "", "%=", "^=", "=", "s>>=", "", "", ""];
