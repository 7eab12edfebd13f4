//! Names of functions, reduced to the form that the table has.

use super::super::FoldedStack;

/// The function's own name: without offset, module, and what a compiler or the kernel's build put
/// before or behind it.
///
/// Compilers split and clone functions (`.isra.0`, `.constprop.0`, `.part.0`, `.cold`,
/// `.llvm.123`), the kernel pads and aliases them (`__pfx_`, `__cfi_`, `__pi_`), kallsyms adds the
/// module (` [veth]`): it is the same function still. User functions may have dots and blanks in
/// their names; they are not asked of the table.
pub fn plain_name(symbol: &str) -> &str {
    let word = symbol.split_whitespace().next().unwrap_or_default();
    let whole = word.split("+0x").next().unwrap_or(word);
    let symbol = PREFIXES.iter().find_map(|prefix| whole.strip_prefix(prefix)).unwrap_or(whole);
    // A dot is no letter of C's names; one at the start is the name of a local label.
    match symbol.char_indices().skip(1).find(|&(_, c)| c == '.') {
        Some((dot, _)) => &symbol[..dot],
        None => symbol,
    }
}

/// The functions of a stack by their own names, from the root to the leaf, as pictures and other
/// tools have them.
pub fn path_from_root(stack: &FoldedStack) -> impl Iterator<Item = &str> {
    let kernel = stack.kernel_frames as usize;
    let frames = stack.frames.iter().enumerate().rev();
    frames.map(move |(at, name)| if at < kernel { plain_name(name) } else { name.as_str() })
}

const PREFIXES: [&str; 3] = ["__pfx_", "__cfi_", "__pi_"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::TaskClass;
    use super::*;

    #[test]
    fn a_path_begins_at_the_root_and_leaves_user_names_as_they_are() {
        let stack = FoldedStack {
            frames: ["tcp_ack.part.0", "tcp_rcv [tcp]", "Vec<T>::new.cold", "main"]
                .map(str::to_owned)
                .to_vec(),
            softirq_frames: 0,
            kernel_frames: 2,
            task: TaskClass::Flow,
            count: 1,
        };
        let path: Vec<&str> = path_from_root(&stack).collect();
        assert_eq!(path, ["main", "Vec<T>::new.cold", "tcp_rcv", "tcp_ack"]);
    }

    #[test]
    fn what_the_build_added_is_taken_off() {
        for (symbol, name) in [
            ("tcp_ack", "tcp_ack"),
            ("tcp_ack+0x1f/0x80", "tcp_ack"),
            ("__tcp_send_ack.part.0", "__tcp_send_ack"),
            ("nf_confirm.isra.0.cold", "nf_confirm"),
            ("htb_dequeue.cold [sch_htb]", "htb_dequeue"),
            ("foo.constprop.0\t[mod]", "foo"),
            ("bar.llvm.12345", "bar"),
            ("__pfx_tcp_sendmsg", "tcp_sendmsg"),
            ("__pi_memcpy", "memcpy"),
            ("bpf_prog_0f1e2d3c4b5a6978_mark[bpf]", "bpf_prog_0f1e2d3c4b5a6978_mark[bpf]"),
            ("[user]", "[user]"),
            (".L1", ".L1"),
            ("", ""),
        ] {
            assert_eq!(plain_name(symbol), name, "{symbol}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_name_within_it(text in "\\PC{0,40}") {
            prop_assert!(text.contains(plain_name(&text)));
            prop_assert_eq!(plain_name(plain_name(&text)).len() <= text.len(), true);
        }
    }
}
