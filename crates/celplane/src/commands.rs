//! The subcommands: one file each, registered by one line in a list.

/// Declares a set of subcommands. Each names a module with `Arguments`, whose doc comment is its help, and with
/// `Arguments::run`, which answers with the exit code: 0, or 1 where the question's answer is no.
macro_rules! subcommands {
    ($($name:ident => $module:ident,)*) => {
        $(mod $module;)*

        /// What to do.
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $(#[allow(missing_docs, reason = "the arguments' own documentation is shown")] $name(Box<$module::Arguments>),)*
        }

        impl Command {
            /// Does it.
            pub(crate) fn run(self) -> anyhow::Result<std::process::ExitCode> {
                match self {
                    $(Command::$name(arguments) => (*arguments).run(),)*
                }
            }
        }
    };
}
pub(crate) use subcommands;

subcommands! {
    Apiserver => apiserver,
    Cel => cel,
    Check => check,
    Completion => completion,
    ControllerManager => controller_manager,
    Demo => demo,
    Down => down,
    Kubelet => kubelet,
    Man => man,
    Scan => scan,
    Scheduler => scheduler,
    Simulate => simulate,
    Store => store,
    Up => up,
    Version => version,
    Why => why,
}
