//! Something of each namespace.

use std::sync::Arc;

/// See the module. Bounded by the namespaces of the configurations so far.
pub(super) struct ByNamespace<T> {
    /// In the order of their names.
    all: Vec<(Arc<str>, T)>,
    /// Where the latest is that was asked for: most events follow one of the same namespace, which is then found by its
    /// address.
    latest: usize,
}

impl<T> Default for ByNamespace<T> {
    fn default() -> ByNamespace<T> {
        ByNamespace { all: Vec::new(), latest: 0 }
    }
}

impl<T: Default> ByNamespace<T> {
    /// That of this namespace, which begins with the default.
    pub(super) fn of(&mut self, name: &Arc<str>) -> &mut T {
        let is_latest = self.all.get(self.latest).is_some_and(|(latest, _)| Arc::ptr_eq(latest, name));
        if !is_latest {
            let place = self.place(name);
            if let Err(place) = place {
                self.all.insert(place, (name.clone(), T::default()));
            }
            self.latest = place.unwrap_or_else(|place| place);
            // A reload gives names other addresses.
            self.all[self.latest].0 = name.clone();
        }
        &mut self.all[self.latest].1
    }
}

impl<T> ByNamespace<T> {
    /// That of this namespace, if there was any.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.place(name).ok().map(|place| &self.all[place].1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.all.iter().map(|(name, value)| (name, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.all.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_own_by_whatever_address_it_comes() {
        let mut counts: ByNamespace<u32> = ByNamespace::default();
        let (orders, stock): (Arc<str>, Arc<str>) = ("orders".into(), "stock".into());
        let after_a_reload: Arc<str> = "orders".into();
        for name in [&stock, &orders, &orders, &after_a_reload, &stock, &orders] {
            *counts.of(name) += 1;
        }
        let all: Vec<_> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
        assert_eq!(all, [("orders", 4), ("stock", 2)]);
        assert_eq!((counts.get("stock"), counts.get("shop"), counts.len()), (Some(&2), None, 2));
    }
}
