//! Imports between the files of one crate.
//!
//! A file uses another if its code names an item of it: in a `use`, a path or a macro. An item that a
//! module re-exports belongs to the file that declares it, so `pub use` is no import by itself. Code
//! for tests is left out. Calls of methods are not seen, as they name no file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree, Visibility};

/// Absolute path in a crate, without `crate`.
type Names = Vec<String>;

/// Number of imports that may lead from a name to its item.
const DEPTH: usize = 16;

/// Files that each file of a crate uses. Paths are relative to the folder of the crate's sources.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

#[derive(Default)]
struct CrateModule {
    file: PathBuf,
    /// Local names of `use`, with their meaning.
    aliases: BTreeMap<String, Names>,
    /// Modules whose items are all visible.
    globs: Vec<Names>,
    items: BTreeSet<String>,
    code: Vec<Item>,
}

type Modules = BTreeMap<Names, CrateModule>;

/// Returns the imports between the files of a crate, whose sources are in `src`.
///
/// # Panics
///
/// If a file cannot be read or parsed.
pub fn imports(src: &Path) -> Imports {
    let mut modules = Modules::new();
    let root = PathBuf::from("lib.rs");
    let code = parse(&src.join(&root));
    add(&mut modules, src, Vec::new(), &root, code);
    imports_of(&modules)
}

fn imports_of(modules: &Modules) -> Imports {
    let mut imports = Imports::new();
    for (names, module) in modules {
        let mut finder = Finder {
            modules,
            module: names,
            found: BTreeSet::new(),
        };
        module.code.iter().for_each(|item| finder.visit_item(item));
        let used = imports.entry(module.file.clone()).or_default();
        used.extend(finder.found.into_iter().filter(|file| *file != module.file));
    }
    imports
}

/// Returns the circles: sets of at least two files that use each other, directly or through others.
pub fn circles(imports: &Imports) -> Vec<BTreeSet<PathBuf>> {
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = imports
        .keys()
        .map(|file| (file, reach(imports, file)))
        .collect();
    let mut found = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(file) {
            let returns = others
                .iter()
                .filter(|other| reached[**other].contains(file));
            found.insert(
                returns
                    .map(|&other| other.clone())
                    .collect::<BTreeSet<PathBuf>>(),
            );
        }
    }
    found.into_iter().collect()
}

/// Returns the files that `file` uses, directly or through others.
fn reach<'a>(imports: &'a Imports, file: &'a PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for used in &imports[file] {
            if reached.insert(used) {
                open.push(used);
            }
        }
    }
    reached
}

fn parse(path: &Path) -> Vec<Item> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.items
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list)
                if ["test", "all (test", "all (loom"].iter().any(|start|
                    list.tokens.to_string().starts_with(start)))
    })
}

/// Adds a module, and those that it declares.
fn add(modules: &mut Modules, src: &Path, names: Names, file: &Path, code: Vec<Item>) {
    let mut module = CrateModule {
        file: file.to_owned(),
        ..CrateModule::default()
    };
    for item in code {
        if let Item::Mod(child) = &item {
            if is_test(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let path = [names.clone(), vec![name.clone()]].concat();
            let (file, code) = match &child.content {
                Some((_, code)) => (file.to_owned(), code.clone()),
                None => {
                    let folder: PathBuf = path.iter().collect();
                    let file = [folder.with_extension("rs"), folder.join("mod.rs")];
                    let file = file.into_iter().find(|file| src.join(file).exists());
                    let file = file.unwrap_or_else(|| panic!("no file of module {path:?}"));
                    let code = parse(&src.join(&file));
                    (file, code)
                }
            };
            add(modules, src, path, &file, code);
            continue;
        }
        match &item {
            Item::Use(import) => {
                let mut all = Vec::new();
                flatten(&import.tree, &mut Vec::new(), &mut all);
                for (alias, path) in all {
                    match alias.as_str() {
                        "*" => module.globs.push(path),
                        _ => drop(module.aliases.insert(alias, path)),
                    }
                }
            }
            Item::Const(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Enum(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Fn(item) => drop(module.items.insert(item.sig.ident.to_string())),
            Item::Static(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Struct(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Trait(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Type(item) => drop(module.items.insert(item.ident.to_string())),
            Item::Macro(item) => {
                let name = item.ident.as_ref().map(ToString::to_string);
                module.items.extend(name);
            }
            _ => {}
        }
        module.code.push(item);
    }
    modules.insert(names, module);
}

/// Adds each name of a `use`, with its path.
fn flatten(tree: &UseTree, path: &mut Names, all: &mut Vec<(String, Names)>) {
    let mut push = |alias: String, name: Option<String>| {
        let full = path.iter().cloned().chain(name).collect();
        all.push((alias, full));
    };
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, all);
            path.pop();
        }
        UseTree::Name(part) if part.ident == "self" => {
            push(path.last().cloned().unwrap_or_default(), None);
        }
        UseTree::Name(part) => push(part.ident.to_string(), Some(part.ident.to_string())),
        UseTree::Rename(part) => push(part.rename.to_string(), Some(part.ident.to_string())),
        UseTree::Glob(_) => push("*".to_owned(), None),
        UseTree::Group(group) => {
            for part in &group.items {
                flatten(part, path, all);
            }
        }
    }
}

/// Returns a path as seen from the root of the crate; `None` if it does not begin with `crate`,
/// `self` or `super`.
fn absolute(module: &[String], path: &[String]) -> Option<Names> {
    let mut start = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    let mut rest = path;
    while let Some((name, further)) = rest.split_first() {
        match name.as_str() {
            "super" => drop(start.pop()),
            "crate" | "self" => {}
            _ => break,
        }
        rest = further;
    }
    start.extend(rest.iter().cloned());
    Some(start)
}

/// Returns a path as seen from the root of the crate. A name that the module does not import is one
/// of a child module or an item of the module.
fn full(modules: &Modules, module: &Names, path: &[String], depth: usize) -> Names {
    if let Some(full) = absolute(module, path) {
        return full;
    }
    match path.split_first() {
        Some((first, rest)) if depth > 0 => match modules[module].aliases.get(first) {
            Some(to) if to != path => {
                let to = full(modules, module, to, depth - 1);
                [to.as_slice(), rest].concat()
            }
            _ => [module.as_slice(), path].concat(),
        },
        _ => [module.as_slice(), path].concat(),
    }
}

/// Returns the file that declares an item; `None` if the path names a module or another crate.
/// `depth` limits the number of imports to follow, since a name may be an import of itself.
fn file_of<'a>(modules: &'a Modules, path: &[String], depth: usize) -> Option<&'a Path> {
    let known = (0..=path.len())
        .rev()
        .find(|&n| modules.contains_key(&path[..n]))?;
    let (names, module) = modules.get_key_value(&path[..known])?;
    let name = path.get(known)?;
    if module.items.contains(name) {
        return Some(&module.file);
    }
    let depth = depth.checked_sub(1)?;
    let further = |to: &Names, rest: &[String]| {
        let path = [full(modules, names, to, depth).as_slice(), rest].concat();
        file_of(modules, &path, depth)
    };
    if let Some(to) = module.aliases.get(name) {
        return further(to, &path[known + 1..]);
    }
    let mut globs = module.globs.iter();
    globs.find_map(|to| further(to, &path[known..]))
}

/// Collects the files whose items the code of a module names.
struct Finder<'a> {
    modules: &'a Modules,
    module: &'a Names,
    found: BTreeSet<PathBuf>,
}

impl Finder<'_> {
    fn name(&mut self, path: &[String]) {
        if path.is_empty() {
            return;
        }
        let full = full(self.modules, self.module, path, DEPTH);
        let file = file_of(self.modules, &full, DEPTH);
        self.found.extend(file.map(Path::to_owned));
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(&std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.name(&std::mem::take(&mut path));
                    self.tokens(group.stream());
                }
                _ => self.name(&std::mem::take(&mut path)),
            }
        }
        self.name(&path);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        if !matches!(import.vis, Visibility::Inherited) {
            return;
        }
        let mut all = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut all);
        for (alias, path) in all {
            if alias != "*" {
                self.name(&path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.name(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut modules = Modules::new();
        for (file, text) in files {
            let names = file.trim_end_matches(".rs").split('/').map(str::to_owned);
            let names = names.filter(|name| name != "lib").collect();
            let code = syn::parse_file(text).expect("Rust code").items;
            add(&mut modules, Path::new(""), names, Path::new(file), code);
        }
        let circles = circles(&imports_of(&modules));
        let names = |circle: BTreeSet<PathBuf>| {
            circle
                .iter()
                .map(|file| file.display().to_string())
                .collect()
        };
        circles.into_iter().map(names).collect()
    }

    #[test]
    fn uses_paths_and_macros_make_a_circle_and_facades_and_tests_make_none() {
        let lib = ("lib.rs", "pub use a::A; pub use b::B;");
        let a = ("a.rs", "use crate::B; pub struct A(B);");

        for text in [
            "use super::A; pub struct B;",
            "pub struct B; fn f() { crate::a::A; }",
            "pub struct B; fn f() { panic!(\"{}\", [super::a::A]); }",
            "use crate::a as other; pub struct B; fn f(_: other::A) {}",
            "use crate::*; pub struct B; fn f(_: A) {}",
        ] {
            assert_eq!(
                circles_of(&[lib, a, ("b.rs", text)]),
                [["a.rs", "b.rs"]],
                "{text}"
            );
        }
        for text in [
            "pub struct B;",
            "pub use crate::a::A; pub struct B;",
            "pub struct B; #[cfg(test)] mod tests { use crate::A; }",
        ] {
            assert!(circles_of(&[lib, a, ("b.rs", text)]).is_empty(), "{text}");
        }
    }
}
