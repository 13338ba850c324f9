//! The subcommands: one file each, registered by one line in a list.

/// Declares a set of subcommands. Each names a module with `Arguments`, whose doc comment is its help, and with
/// `Arguments::run`, which answers with the exit code: 0, or 1 where the question's answer is no.
macro_rules! subcommands {
    ($($name:ident => $module:ident,)*) => {
        $(pub(crate) mod $module;)*

        /// The subcommand to run.
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $(#[allow(missing_docs, reason = "the arguments' own documentation is shown")] $name(Box<$module::Arguments>),)*
        }

        impl Command {
            /// Runs the subcommand.
            pub(crate) fn run(self) -> anyhow::Result<std::process::ExitCode> {
                match self {
                    $(Command::$name(arguments) => (*arguments).run(),)*
                }
            }
        }
    };
}
pub(crate) use subcommands;
pub(crate) use version::KUBERNETES as KUBERNETES_VERSION;

subcommands! {
    Apiserver => apiserver,
    Cel => cel,
    Check => check,
    Completion => completion,
    Console => console,
    ControllerManager => controller_manager,
    Convert => convert,
    Demo => demo,
    Dns => dns,
    Doctor => doctor,
    Down => down,
    EnvtestAssets => envtest_assets,
    Gates => gates,
    Get => get,
    Join => join,
    Kubelet => kubelet,
    List => list,
    Man => man,
    Proxy => proxy,
    Scan => scan,
    Scheduler => scheduler,
    Simulate => simulate,
    Store => store,
    Up => up,
    Version => version,
    Webhook => webhook,
    Why => why,
}
