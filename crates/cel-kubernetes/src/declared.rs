//! Types of the host for the cost estimate: kind and size of values.
//!
//! One tree of [`DeclaredType`] per variable serves the checker as types with fields, and the estimate as sizes.
//! Follows `DeclType` of Kubernetes' `apiserver/pkg/cel`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::cost::{PathStep, Size, SizeHints};
use cel::env::{FieldType, TypeProvider};
use cel::syntax::ast::Name;
use cel::types::Type;

/// A type of the host, and how large its values can be.
#[derive(Debug, Clone)]
pub struct DeclaredType {
    /// The type that the checker sees.
    pub cel_type: Type,
    /// Maximum number of code points, octets, elements or entries of a value. 0 if none was declared.
    pub max_elements: u64,
    /// Minimum number of bytes of a value, serialized as JSON.
    pub min_serialized_size: u64,
    /// Types of the parts.
    pub inside: ElementTypes,
}

/// Types of the parts of a value of a declared type.
#[derive(Debug, Clone)]
pub enum ElementTypes {
    /// No parts.
    Scalar,
    /// Elements.
    List(Arc<DeclaredType>),
    /// Keys and values.
    Map(Arc<DeclaredType>, Arc<DeclaredType>),
    /// Fields, by their escaped names.
    Object(BTreeMap<Name, Arc<DeclaredType>>),
}

impl DeclaredType {
    /// A type with nothing inside.
    pub fn scalar(cel_type: Type, max_elements: u64, min_serialized_size: u64) -> DeclaredType {
        DeclaredType { cel_type, max_elements, min_serialized_size, inside: ElementTypes::Scalar }
    }

    /// Text of at most this many code points.
    pub fn string(max_elements: u64) -> DeclaredType {
        DeclaredType::scalar(Type::String, max_elements, 2)
    }

    /// A list of at most this many elements.
    pub fn list(element: DeclaredType, max_elements: u64) -> DeclaredType {
        let cel_type = Type::list(element.cel_type.clone());
        DeclaredType { cel_type, max_elements, min_serialized_size: 2, inside: ElementTypes::List(Arc::new(element)) }
    }

    /// A map of at most this many entries.
    pub fn map(key: DeclaredType, value: DeclaredType, max_elements: u64) -> DeclaredType {
        let cel_type = Type::map(key.cel_type.clone(), value.cel_type.clone());
        let inside = ElementTypes::Map(Arc::new(key), Arc::new(value));
        DeclaredType { cel_type, max_elements, min_serialized_size: 2, inside }
    }

    /// A type with fields.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (Name, DeclaredType)>) -> DeclaredType {
        let fields = fields.into_iter().map(|(name, of)| (name, Arc::new(of))).collect();
        DeclaredType {
            cel_type: Type::object(name),
            max_elements: 0,
            min_serialized_size: 2,
            inside: ElementTypes::Object(fields),
        }
    }

    /// The field or, in a map, the value that a name selects.
    fn field(&self, name: &str) -> Option<&DeclaredType> {
        match &self.inside {
            ElementTypes::Object(fields) => fields.get(name).map(AsRef::as_ref),
            _ => None,
        }
    }

    fn for_each_object(&self, visit: &mut impl FnMut(&DeclaredType)) {
        match &self.inside {
            ElementTypes::Scalar => {}
            ElementTypes::List(element) => element.for_each_object(visit),
            ElementTypes::Map(key, value) => {
                key.for_each_object(visit);
                value.for_each_object(visit);
            }
            ElementTypes::Object(fields) => {
                visit(self);
                for field in fields.values() {
                    field.for_each_object(visit);
                }
            }
        }
    }
}

/// The declared types of an environment's variables: types for the checker, sizes for the estimate.
#[derive(Debug, Clone, Default)]
pub struct DeclaredTypes {
    variables: Vec<(Name, Arc<DeclaredType>)>,
    objects: HashMap<Name, BTreeMap<Name, Arc<DeclaredType>>>,
    /// Whether keywords are accepted as fields without an escape.
    keywords_as_fields: bool,
    /// Whether, in maps, a key that is selected like a field has the size of the values.
    sizes_of_selected_keys: bool,
    /// Whether every path starts at the first variable, regardless of its own first step.
    single_root: bool,
}

impl DeclaredTypes {
    /// The types of these variables.
    pub fn new(variables: impl IntoIterator<Item = (&'static str, Arc<DeclaredType>)>) -> Self {
        let mut types = DeclaredTypes::default();
        for (name, declared) in variables {
            declared.for_each_object(&mut |object| {
                if let (Type::Object(name), ElementTypes::Object(fields)) = (&object.cel_type, &object.inside) {
                    types.objects.insert(name.clone(), fields.clone());
                }
            });
            types.variables.push((Name::from_static(name), declared));
        }
        types
    }

    /// Keywords such as `namespace` are found as fields also where they are not escaped.
    #[must_use]
    pub fn with_keywords_as_fields(mut self) -> Self {
        self.keywords_as_fields = true;
        self
    }

    /// A value that is selected from a map like a field, `attributes.name`, has the size of the map's values.
    #[must_use]
    pub fn with_sizes_of_selected_keys(mut self) -> Self {
        self.sizes_of_selected_keys = true;
        self
    }

    /// Every path starts at the first variable, regardless of its first step. Kubernetes' schemas do the same:
    /// even the name of a type, as in `type(self.port) == int`, or the element of a computed list has the size
    /// of the root.
    #[must_use]
    pub fn with_single_root(mut self) -> Self {
        self.single_root = true;
        self
    }

    fn root(&self, first: PathStep<'_>) -> Option<&DeclaredType> {
        let mut variables = self.variables.iter();
        let found = match first {
            _ if self.single_root => variables.next(),
            PathStep::Variable(name) => variables.find(|(variable, _)| variable == name),
            _ => None,
        };
        found.map(|(_, declared)| declared.as_ref())
    }

    /// The variables and their types.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.variables.iter().map(|(name, declared)| (name.as_str(), &declared.cel_type))
    }

    fn step<'d>(&'d self, at: &'d DeclaredType, step: PathStep<'_>) -> Option<&'d DeclaredType> {
        match (step, &at.inside) {
            (PathStep::Items | PathStep::Values, ElementTypes::List(element) | ElementTypes::Map(_, element)) => {
                Some(element)
            }
            (PathStep::Keys, ElementTypes::Map(key, _)) => Some(key),
            (PathStep::Field(_), ElementTypes::Map(_, value))
                if self.sizes_of_selected_keys && matches!(value.cel_type, Type::Any | Type::Dyn) =>
            {
                Some(value)
            }
            (PathStep::Field(name), _) => at.field(name),
            _ => None,
        }
    }
}

impl SizeHints for DeclaredTypes {
    fn size(&self, path: &[PathStep<'_>], _of: &Type) -> Option<Size> {
        let (first, rest) = path.split_first()?;
        let mut at = self.root(*first)?;
        for step in rest {
            at = self.step(at, *step)?;
        }
        Some(Size::at_most(at.max_elements))
    }
}

/// Scalars that Kubernetes' type provider also declares under these names.
const SCALARS: [(&str, Type); 2] = [("duration", Type::Duration), ("timestamp", Type::Timestamp)];

impl TypeProvider for DeclaredTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        if let Some((name, _)) = self.objects.get_key_value(name) {
            return Some(Type::object(name.clone()));
        }
        SCALARS.iter().find(|(scalar, _)| *scalar == name).map(|(_, of)| of.clone())
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
        let fields = self.objects.get(type_name)?;
        let found = fields.get(field).or_else(|| {
            let escaped =
                (self.keywords_as_fields && crate::names::is_keyword(field)).then(|| format!("__{field}__"))?;
            fields.get(escaped.as_str())
        })?;
        Some(FieldType { field_type: found.cel_type.clone() })
    }

    fn field_names(&self, type_name: &str) -> Vec<Name> {
        self.objects.get(type_name).map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    }
}
