//! The files of the page, embedded in the program.

/// A file: its path, its media type, its content.
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) content: &'static [u8],
}

macro_rules! assets {
    ($($path:literal: $media_type:ident = $file:literal,)*) => {
        /// Every file.
        pub(crate) const ALL: &[Asset] = &[
            $(Asset { path: $path, media_type: $media_type, content: include_bytes!(concat!("../page/", $file)) },)*
        ];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

assets! {
    "/": HTML = "index.html",
    "/icon.svg": SVG = "icon.svg",
    "/style.css": CSS = "style.css",
    "/main.js": SCRIPT = "main.js",
    "/dom.js": SCRIPT = "dom.js",
    "/api.js": SCRIPT = "api.js",
    "/yaml.js": SCRIPT = "yaml.js",
    "/why.js": SCRIPT = "why.js",
    "/devices.js": SCRIPT = "devices.js",
    "/map.js": SCRIPT = "map.js",
    "/playground.js": SCRIPT = "playground.js",
    "/examples.js": SCRIPT = "examples.js",
    "/simulate.js": SCRIPT = "simulate.js",
    "/resources.js": SCRIPT = "resources.js",
    "/object.js": SCRIPT = "object.js",
}

/// The file at a path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ALL.iter().find(|asset| asset.path == path)
}

/// The file at a path as it is on disk, so that the page can be changed without a build. Debug builds only.
#[cfg(debug_assertions)]
pub(crate) fn from_disk(asset: &Asset) -> Option<Vec<u8>> {
    let directory = std::env::var_os("CELPLANE_CONSOLE_PAGE")?;
    let name = if asset.path == "/" { "index.html" } else { asset.path.trim_start_matches('/') };
    std::fs::read(std::path::Path::new(&directory).join(name)).ok()
}
