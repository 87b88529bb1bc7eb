//! Owns: the JSON Schema of kinds and tables, as the API's description shows it.
//! Invariants: what a schema refuses the check refuses, and what it takes the check takes but for what follows from other fields;
//! a table is written once and referred to by its name.

use serde_json::{Map, Value, json};

use crate::shape::{Fields, Kind, Others};

impl Kind {
    /// The kind as JSON Schema; tables with names go to `named` once and are referred to.
    pub fn schema(self, named: &mut Map<String, Value>) -> Value {
        match self {
            Kind::Anything => json!({}),
            Kind::Text => json!({ "type": "string" }),
            Kind::Choice(words) => json!({ "type": "string", "enum": words }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Whole(least, most) => {
                // Numbers beyond 64 bits are not read as whole ones.
                let least = i64::try_from(least).unwrap_or(i64::MIN);
                let most = u64::try_from(most).unwrap_or(u64::MAX);
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Kind::Real(least, most) => {
                let mut schema = json!({ "type": "number" });
                // Numbers that are finite as 32 bits.
                schema["minimum"] = json!(least.max(f64::from(f32::MIN)));
                schema["maximum"] = json!(most.min(f64::from(f32::MAX)));
                schema
            }
            Kind::Only(json) => json!({ "enum": [serde_json::from_str::<Value>(json).unwrap_or_default()] }),
            Kind::List(inner) => json!({ "type": "array", "items": inner.schema(named) }),
            Kind::Map => json!({ "type": "object" }),
            Kind::ByToken(inner) => json!({
                "type": "object",
                "propertyNames": { "pattern": "^[0-9]{1,10}$" },
                "additionalProperties": inner.schema(named),
            }),
            Kind::Object(fields) => fields.reference(named),
            Kind::Tagged(tables) => {
                let tables = tables.iter().enumerate();
                let typed = tables
                    .map(|(at, (tag, fields))| json!({ "allOf": [fields.reference(named), of_type(tag, at == 0)] }));
                json!({ "anyOf": typed.collect::<Vec<_>>() })
            }
            Kind::Either(kinds) => {
                json!({ "anyOf": kinds.iter().map(|kind| kind.schema(named)).collect::<Vec<_>>() })
            }
        }
    }
}

/// Objects of a type; of the first one, its name may be missing.
fn of_type(tag: &str, may_be_missing: bool) -> Value {
    let text = match tag.strip_suffix('*') {
        Some(begin) => json!({ "type": "string", "pattern": format!("^{begin}") }),
        None => json!({ "enum": [tag] }),
    };
    match may_be_missing {
        true => json!({ "properties": { "type": { "anyOf": [text, { "type": "null" }] } } }),
        false => json!({ "properties": { "type": text }, "required": ["type"] }),
    }
}

impl Fields {
    fn reference(&self, named: &mut Map<String, Value>) -> Value {
        let reference = json!({ "$ref": format!("#/components/schemas/{}", self.name) });
        if !named.contains_key(self.name) {
            // The place is taken first: a table may hold itself.
            named.insert(self.name.to_owned(), Value::Null);
            let schema = self.schema(named);
            named.insert(self.name.to_owned(), schema);
        }
        reference
    }

    fn schema(&self, named: &mut Map<String, Value>) -> Value {
        let mut properties = Map::new();
        for field in self.fields {
            let mut schema = field.kind.schema(named);
            if !field.required {
                schema = json!({ "anyOf": [schema, { "type": "null" }] });
            }
            if !field.about.is_empty() {
                schema["description"] = json!(field.about);
            }
            properties.insert(field.name.to_owned(), schema);
        }
        let required: Vec<&str> = self.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if self.others == Others::Refused {
            // A field that is `null` is not set, whatever its name.
            schema["additionalProperties"] = json!({ "type": "null" });
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Field;

    const INNER: Fields = Fields::strict("Inner", &[Field::required("a", Kind::Text, "")]);
    const OUTER: Fields = Fields::strict(
        "Outer",
        &[
            Field::new("items", Kind::List(&Kind::Object(&INNER)), ""),
            Field::new("item", Kind::Tagged(&[("a", &INNER), ("b*", &INNER)]), ""),
            Field::new("count", Kind::Whole(1, i128::MAX), ""),
        ],
    );

    #[test]
    fn the_description_names_the_tables_once() {
        let mut named = Map::new();
        let schema = Kind::Object(&OUTER).schema(&mut named);
        assert_eq!(schema, json!({ "$ref": "#/components/schemas/Outer" }));
        assert_eq!(named["Inner"]["required"], json!(["a"]));
        assert_eq!(named["Outer"]["additionalProperties"], json!({ "type": "null" }));
    }

    #[test]
    fn a_type_is_described_with_the_table_that_it_names() {
        let mut named = Map::new();
        let _ = Kind::Object(&OUTER).schema(&mut named);
        let typed = &named["Outer"]["properties"]["item"]["anyOf"][0]["anyOf"];
        let first = json!({ "properties": { "type": { "anyOf": [{ "enum": ["a"] }, { "type": "null" }] } } });
        assert_eq!(typed[0]["allOf"][1], first);
        let second = json!({ "properties": { "type": { "type": "string", "pattern": "^b" } }, "required": ["type"] });
        assert_eq!(typed[1]["allOf"][1], second);
    }

    #[test]
    fn whole_numbers_are_those_of_64_bits() {
        let schema = Kind::Whole(1, i128::MAX).schema(&mut Map::new());
        assert_eq!(schema, json!({ "type": "integer", "minimum": 1, "maximum": u64::MAX }));
    }
}
