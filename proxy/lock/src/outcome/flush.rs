//! The result of a FLUSH: parses the answer of `flush.lua`.

use bytes::Bytes;
use lockwarden_resp::Value;

use super::NotAnAnswer;
use super::array::{Fields, code};
use crate::namespace::NamespaceId;

/// What a FLUSH did.
#[derive(Clone, Debug, PartialEq)]
pub enum FlushAnswer {
    /// Redis ran the command and replied this.
    Run(Value, Found),
    /// Nothing was done.
    Refused(Found),
    /// Redis did not let the step look, or did not run it at all. The error from its code on.
    Error(Bytes),
}

/// What the step found before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How many keys there were.
    pub keys: u64,
    /// Whether they were looked at.
    pub looked: Looked,
    /// The namespaces with live leases.
    pub leases: Vec<LiveLeases>,
    /// Redis's error, if they could not be examined and the command was run all the same.
    pub trouble: Option<Bytes>,
}

/// How far the step looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It looked at every key.
    Through,
    /// It stopped once more leases could change nothing: there may be more.
    UntilEnough,
    /// It did not look: there were too many keys, or Redis did not allow it.
    Not,
}

/// The live leases of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLeases {
    /// The namespace.
    pub namespace: NamespaceId,
    /// How many.
    pub count: u64,
    /// One of the lock keys.
    pub key: Bytes,
    /// The database of that key; `None` for the selected one.
    pub db: Option<u32>,
}

impl Found {
    /// How many live leases there were, at least; `None` if they were not counted.
    pub fn locks(&self) -> Option<u64> {
        match self.looked {
            Looked::Through | Looked::UntilEnough => Some(self.leases.iter().map(|leases| leases.count).sum()),
            Looked::Not => None,
        }
    }
}

/// Reads what `flush.lua` answered.
///
/// # Errors
/// The answer is not one of its own.
pub fn read_flush(value: &Value) -> Result<FlushAnswer, NotAnAnswer> {
    if let Some(error) = value.as_error() {
        return Ok(FlushAnswer::Error(error.clone()));
    }
    let items = value.as_items().ok_or(NotAnAnswer)?;
    let native = items.get(1).ok_or(NotAnAnswer)?;
    match code(items)? {
        b'F' => Ok(FlushAnswer::Run(native.clone(), found(items)?)),
        b'N' => Ok(FlushAnswer::Refused(found(items)?)),
        b'?' => {
            let error = native.as_error().ok_or(NotAnAnswer)?;
            Ok(FlushAnswer::Error(error.clone()))
        }
        _ => Err(NotAnAnswer),
    }
}

fn found(items: &[Value]) -> Result<Found, NotAnAnswer> {
    let fields = Fields(items);
    let leases = items.get(5..).ok_or(NotAnAnswer)?.chunks(4);
    Ok(Found {
        keys: fields.number(3)?,
        looked: match fields.number(4)? {
            0 => Looked::Not,
            1 => Looked::Through,
            2 => Looked::UntilEnough,
            _ => return Err(NotAnAnswer),
        },
        leases: leases.map(live).collect::<Result<_, _>>()?,
        trouble: match fields.reason(2) {
            Some(_) => None,
            None => fields.bytes(2).filter(|error| !error.is_empty()),
        },
    })
}

fn live(four: &[Value]) -> Result<LiveLeases, NotAnAnswer> {
    let fields = Fields(four);
    let db = four.get(3).and_then(Value::as_integer).ok_or(NotAnAnswer)?;
    let namespace = u16::try_from(fields.number(0)?).map_err(|_| NotAnAnswer)?;
    Ok(LiveLeases {
        namespace: NamespaceId(namespace),
        count: fields.number(1)?,
        key: fields.bytes(2).ok_or(NotAnAnswer)?,
        db: u32::try_from(db).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn the_answers_of_the_script_are_read_back() {
        let mut items = vec![bulk("N"), Value::Null, bulk("bulk-delete")];
        items.extend([4, 2].map(Value::Integer));
        items.extend([Value::Integer(1), Value::Integer(7), bulk("lock:a"), Value::Integer(-1)]);
        let FlushAnswer::Refused(found) = read_flush(&Value::Array(items.clone())).unwrap() else {
            panic!("a refusal");
        };
        assert_eq!((found.keys, found.locks()), (4, Some(7)));
        assert_eq!(found.looked, Looked::UntilEnough);
        assert_eq!(found.leases[0].namespace, NamespaceId(1));
        assert_eq!((found.leases[0].db, found.trouble), (None, None));
        items.pop();
        assert_eq!(read_flush(&Value::Array(items)), Err(NotAnAnswer));
    }

    #[test]
    fn what_is_no_answer_of_the_script_is_said_to_be_none() {
        for items in [
            vec![],
            vec![bulk("F")],
            vec![bulk("F"), bulk("OK"), bulk("")],
            vec![bulk("?"), bulk("no error")],
            vec![bulk("G"), Value::Null],
        ] {
            assert_eq!(read_flush(&Value::Array(items)), Err(NotAnAnswer));
        }
    }
}
