//! Owns: where models and settings lie (engine.md section 9).
//! Invariants: a model directory is never written, but by `ss pack`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Name of the model that the repository ships.
const SHIPPED: &str = "flash-next-nano";

/// The variable that names the folder of models and settings.
pub const HOME: &str = "SS_HOME";

/// `$SS_HOME`, else `slotstream` in the platform's data folder.
pub fn home() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set(HOME) {
        return Some(home);
    }
    let data = if cfg!(target_vendor = "apple") {
        set("HOME").map(|home| home.join("Library/Application Support"))
    } else if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))
    };
    data.map(|data| data.join("slotstream"))
}

/// The directory of a model: a path, or a name in the `models` folder.
///
/// # Errors
/// When there is neither.
pub fn model_dir(model: &Path) -> Result<PathBuf> {
    if model.as_os_str().is_empty() {
        bail!("the name of the model is empty; give a directory with a config.json");
    }
    if model.exists() {
        return Ok(model.to_path_buf());
    }
    match home().map(|home| home.join("models").join(model)) {
        Some(named) if named.is_dir() => Ok(named),
        Some(named) => bail!(
            "there is no model `{}`: neither that path nor `{}` exists; give a directory with a config.json",
            model.display(),
            named.display()
        ),
        None => bail!("there is no model directory `{}`; give one with a config.json", model.display()),
    }
}

/// The model that the repository ships, found from the program or the working directory upwards.
///
/// # Errors
/// When it is not there.
pub fn shipped_model() -> Result<PathBuf> {
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors()).map(|dir| dir.join("models").join(SHIPPED));
    let in_home = home().map(|home| home.join("models").join(SHIPPED));
    match above.chain(in_home).find(|dir| dir.is_dir()) {
        Some(dir) => Ok(dir),
        None => {
            bail!("the small model `{SHIPPED}` is not beside this program; name a model directory with `--model DIR`")
        }
    }
}
