//! The fields of a test as values of options, and the words of its plain enums.

use std::net::IpAddr;

use super::super::{
    Closer, Direction, ExchangeTest, Protocol, ReceiveMethod, SendMethod, StreamTest, Test,
    Traffic, Workload,
};
use crate::units::{BitRate, ByteCount, Dscp, Span, words};
use crate::value::Value;

/// A field of a test that can be a value of an option.
pub(super) trait Field: Sized {
    fn value(&self) -> Option<Value>;
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! fields {
    ($($type:ty: $value:pat => $of:expr, |$this:ident| $to:expr;)*) => {
        $(impl Field for $type {
            fn value(&self) -> Option<Value> {
                let $this = self;
                Some($to)
            }
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $value => $of,
                    _ => None,
                }
            }
        })*
    };
}

fields! {
    bool: Value::Switch(on) => Some(*on), |on| Value::Switch(*on);
    u64: Value::Number(n) => Some(*n), |n| Value::Number(*n);
    u32: Value::Number(n) => u32::try_from(*n).ok(), |n| Value::Number(u64::from(*n));
    f64: Value::Frequency(n) => Some(*n), |n| Value::Frequency(*n);
    ByteCount: Value::Number(n) => Some(Self(*n)), |n| Value::Number(n.0);
    BitRate: Value::Number(n) => Some(Self(*n)), |n| Value::Number(n.0);
    Span: Value::Time(time) => Some(*time), |time| Value::Time(*time);
    String: Value::Name(name) => Some(name.clone()), |name| Value::Name(name.clone());
    Dscp: Value::Dscp(dscp) => Some(*dscp), |dscp| Value::Dscp(*dscp);
    IpAddr: Value::Address(address) => Some(*address), |address| Value::Address(*address);
    SendMethod: Value::Switch(on) => Some(if *on { Self::ZeroCopy } else { Self::Copy }),
        |way| Value::Switch(*way == Self::ZeroCopy);
    ReceiveMethod: Value::Switch(on) => Some(if *on { Self::Discard } else { Self::Read }),
        |way| Value::Switch(*way == Self::Discard);
    Protocol: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
    Direction: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
    Closer: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
}

impl<T: Field> Field for Option<T> {
    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }

    fn from_value(value: &Value) -> Option<Self> {
        T::from_value(value).map(Some)
    }
}

words! {
    Workload word { "stream" Stream, "rr" Rr, "crr" Crr }
    Protocol word { "tcp" Tcp, "udp" Udp, "mptcp" Mptcp }
    Direction word { "up" Up, "down" Down, "both" Both }
    Closer word { "client" Client, "server" Server }
}

pub(super) fn stream(test: &Test) -> Option<&StreamTest> {
    match &test.traffic {
        Traffic::Stream(stream) => Some(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }
}

pub(super) fn stream_mut(test: &mut Test) -> Option<&mut StreamTest> {
    match &mut test.traffic {
        Traffic::Stream(stream) => Some(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }
}

pub(super) fn exchange(test: &Test) -> Option<&ExchangeTest> {
    match &test.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange),
    }
}

pub(super) fn exchange_mut(test: &mut Test) -> Option<&mut ExchangeTest> {
    match &mut test.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange),
    }
}

pub(super) fn put<T: Field>(field: Option<&mut T>, value: &Value) {
    if let (Some(field), Some(value)) = (field, T::from_value(value)) {
        *field = value;
    }
}
