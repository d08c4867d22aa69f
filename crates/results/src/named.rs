//! A small map that keeps the order of insertion, in memory and in JSON.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
};

/// Values by name, in the order in which the names were first inserted; look-ups are linear.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Named(Vec::new())
    }
}

impl<T> Named<T> {
    /// Puts `value` under `name` and returns the value that it replaces, if any.
    pub fn insert(&mut self, name: impl Into<String>, value: T) -> Option<T> {
        let name = name.into();
        match self.get_mut(&name) {
            Some(present) => Some(std::mem::replace(present, value)),
            None => {
                self.0.push((name, value));
                None
            }
        }
    }

    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The value under `name`, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The values in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values in order, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Later values of a repeated name replace earlier ones.
impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        let mut named = Named::default();
        for (name, value) in entries {
            named.insert(name, value);
        }
        named
    }
}

impl<T> IntoIterator for Named<T> {
    type Item = (String, T);
    type IntoIter = std::vec::IntoIter<(String, T)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Named<T>, A::Error> {
                let mut named = Named::default();
                while let Some((name, value)) = entries.next_entry::<String, T>()? {
                    if named.get(&name).is_some() {
                        return Err(A::Error::custom(format!("`{name}` is there twice")));
                    }
                    named.0.push((name, value));
                }
                Ok(named)
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_the_order_of_insertion_through_json() {
        let named: Named<u32> = [("tcp".into(), 1), ("p10".into(), 2), ("p2".into(), 3)].into_iter().collect();
        let json = serde_json::to_string(&named).unwrap();
        assert_eq!(json, r#"{"tcp":1,"p10":2,"p2":3}"#);
        assert_eq!(serde_json::from_str::<Named<u32>>(&json).unwrap(), named);
    }

    #[test]
    fn inserting_a_known_name_replaces_its_value_in_place() {
        let mut named: Named<u32> = [("a".into(), 1), ("b".into(), 2)].into_iter().collect();
        assert_eq!(named.insert("a", 3), Some(1));
        assert_eq!(named.iter().collect::<Vec<_>>(), [("a", &3), ("b", &2)]);
    }

    #[test]
    fn a_name_that_a_file_gives_twice_is_refused() {
        let error = serde_json::from_str::<Named<u32>>(r#"{"a":1,"a":2}"#).unwrap_err();
        assert!(error.to_string().contains("`a` is there twice"), "{error}");
    }
}
