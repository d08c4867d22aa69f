//! Where a key leads within a TOML document: tables and lists, in lines of their own or in one line.

use toml_edit::{Array, ArrayOfTables, InlineTable, Item, Table, TableLike, Value, value};

use super::{Override, OverrideError, Part, Step};

/// What can be entered, or set, at a place of a document.
pub(super) enum Inside<'d> {
    /// A table with lines of its own.
    Table(&'d mut Table),
    /// `{ key = value }`.
    Inline(&'d mut InlineTable),
    /// `[[name]]`, again and again.
    Tables(&'d mut ArrayOfTables),
    /// `[value, value]`.
    List(&'d mut Array),
    /// A value that has nothing within.
    Value,
}

impl<'d> Inside<'d> {
    fn of_item(item: &'d mut Item) -> Self {
        match item {
            Item::Table(table) => Inside::Table(table),
            Item::ArrayOfTables(tables) => Inside::Tables(tables),
            Item::Value(value) => Inside::of_value(value),
            Item::None => Inside::Value,
        }
    }

    fn of_value(value: &'d mut Value) -> Self {
        match value {
            Value::InlineTable(table) => Inside::Inline(table),
            Value::Array(list) => Inside::List(list),
            _ => Inside::Value,
        }
    }

    /// One step further; `before` is the key of this place, and `next` the step after this one. Tables that are missing are made.
    pub(super) fn enter(
        self,
        of: &Override,
        before: &str,
        part: &Part,
        next: Option<&Part>,
    ) -> Result<Inside<'d>, OverrideError> {
        let key = || of.key.clone();
        let no_value = || OverrideError::NoTable { key: key(), part: before.to_owned() };
        let short = |number, length| OverrideError::Short { key: key(), list: before.to_owned(), number, length };
        let (table, missing): (&'d mut dyn TableLike, _) = match self {
            Inside::Table(table) => (table, Item::Table(Table::new())),
            Inside::Inline(table) => (table, value(InlineTable::new())),
            Inside::Tables(tables) => {
                let (number, length) = (part.number(of, before, tables.len())?, tables.len());
                return tables.get_mut(number).map(Inside::Table).ok_or_else(|| short(number, length));
            }
            Inside::List(list) => {
                let (number, length) = (part.number(of, before, list.len())?, list.len());
                return list.get_mut(number).map(Inside::of_value).ok_or_else(|| short(number, length));
            }
            Inside::Value => return Err(no_value()),
        };
        let name = part.name(of, before, table)?;
        if !table.contains_key(name)
            && let Some(number) = next.and_then(Part::as_number)
        {
            return Err(OverrideError::Short { key: key(), list: part.so_far.clone(), number, length: 0 });
        }
        let item = table.entry(name).or_insert(missing);
        if part.so_far == "topology" {
            lengthen(item);
        }
        Ok(Inside::of_item(item))
    }

    /// Sets what the last step leads to; `before` is the key of this place.
    pub(super) fn set(self, of: &Override, before: &str, part: &Part) -> Result<(), OverrideError> {
        let short =
            |number, length| OverrideError::Short { key: of.key.clone(), list: before.to_owned(), number, length };
        let table: &mut dyn TableLike = match self {
            Inside::Table(table) => table,
            Inside::Inline(table) => table,
            Inside::Tables(tables) => {
                let (number, length) = (part.number(of, before, tables.len())?, tables.len());
                let table = tables.get_mut(number).ok_or_else(|| short(number, length))?;
                return of.set_table(table);
            }
            Inside::List(list) => {
                let (number, length) = (part.number(of, before, list.len())?, list.len());
                of.replace(list.get_mut(number).ok_or_else(|| short(number, length))?);
                return Ok(());
            }
            Inside::Value => return Err(OverrideError::NoTable { key: of.key.clone(), part: before.to_owned() }),
        };
        let name = part.name(of, before, table)?;
        let is_list = of.value.as_array().is_some_and(|list| list.iter().all(Value::is_inline_table));
        match table.get_mut(name) {
            Some(Item::ArrayOfTables(tables)) if !is_list => {
                Err(OverrideError::List { key: of.key.clone(), list: of.key.clone(), length: tables.len() })
            }
            Some(Item::Value(present)) => {
                of.replace(present);
                Ok(())
            }
            _ => {
                table.insert(name, value(of.value.clone()));
                Ok(())
            }
        }
    }
}

impl Override {
    /// Puts the value in the place of another. Comments and white space around it stay.
    fn replace(&self, present: &mut Value) {
        let around = present.decor().clone();
        *present = self.value.clone();
        *present.decor_mut() = around;
    }

    /// Makes the value, which must be a table, the whole of an entry of a list of tables.
    fn set_table(&self, present: &mut Table) -> Result<(), OverrideError> {
        let Value::InlineTable(table) = &self.value else {
            return Err(OverrideError::Table { key: self.key.clone(), keys: keys(present) });
        };
        present.clear();
        for (key, within) in table {
            // In a line of its own the white space of the list would be odd.
            let mut within = within.clone();
            within.decor_mut().clear();
            present.insert(key, value(within));
        }
        Ok(())
    }
}

impl Part {
    /// The number of an entry, if this can be one.
    fn as_number(&self) -> Option<usize> {
        match &self.step {
            Step::Entry(number) => Some(*number),
            Step::Key(name) => name.parse().ok(),
        }
    }

    /// The number of an entry of a list of this length.
    fn number(&self, of: &Override, list: &str, length: usize) -> Result<usize, OverrideError> {
        let error = || OverrideError::List { key: of.key.clone(), list: list.to_owned(), length };
        self.as_number().ok_or_else(error)
    }

    /// The key of a table.
    fn name(&self, of: &Override, part: &str, table: &dyn TableLike) -> Result<&str, OverrideError> {
        match &self.step {
            Step::Key(name) => Ok(name),
            Step::Entry(_) => {
                Err(OverrideError::NoList { key: of.key.clone(), part: part.to_owned(), keys: keys(table) })
            }
        }
    }
}

fn keys(table: &dyn TableLike) -> Vec<String> {
    table.iter().map(|(key, _)| key.to_owned()).collect()
}

/// Makes of `topology = "Abilene"` the table that it is short for, in the same line.
fn lengthen(topology: &mut Item) {
    if let Item::Value(Value::String(name)) = topology {
        let mut table = InlineTable::from_iter([("network", name.value().as_str())]);
        *table.decor_mut() = name.decor().clone();
        *topology = Item::Value(table.into());
    }
}
