//! Node monitoring and eviction: the flags, with Kubernetes' names and defaults.

use std::time::Duration;

use controllers::nodes::node_lifecycle::Settings;
use controllers::nodes::node_lifecycle::health::Grace;
use controllers::nodes::node_lifecycle::zones::Rates;

use crate::waiting_time;

/// Flags of the node lifecycle controller.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct NodeLifecycle {
    /// Interval at which node health is checked
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = waiting_time::parse)]
    node_monitor_period: Duration,
    /// Time without a heartbeat after which a node is marked unreachable
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = waiting_time::parse)]
    node_monitor_grace_period: Duration,
    /// Time without a heartbeat after which a node that has never reported is marked unreachable
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = waiting_time::parse)]
    node_startup_grace_period: Duration,
    /// Nodes per second from which pods are evicted, in zones that are healthy or entirely unreachable
    #[arg(long, value_name = "RATE", default_value_t = Rates::default().normal, value_parser = rate)]
    node_eviction_rate: f64,
    /// Nodes per second from which pods are evicted, in large unhealthy zones; pods in small unhealthy zones
    /// are not evicted
    #[arg(long, value_name = "RATE", default_value_t = Rates::default().reduced, value_parser = rate)]
    secondary_node_eviction_rate: f64,
    /// Number of nodes above which a zone is large
    #[arg(long, value_name = "COUNT", default_value_t = Rates::default().large_zone)]
    large_cluster_size_threshold: usize,
    /// Share of nodes that are not ready at which a zone is unhealthy; at least three nodes must be affected
    #[arg(long, value_name = "SHARE", default_value_t = Rates::default().unhealthy_share, value_parser = rate)]
    unhealthy_zone_threshold: f64,
}

impl NodeLifecycle {
    /// Settings from the flags.
    pub(crate) fn settings(self) -> Settings {
        Settings {
            period: self.node_monitor_period,
            grace: Grace { running: self.node_monitor_grace_period, starting: self.node_startup_grace_period },
            rates: Rates {
                normal: self.node_eviction_rate,
                reduced: self.secondary_node_eviction_rate,
                large_zone: self.large_cluster_size_threshold,
                unhealthy_share: self.unhealthy_zone_threshold,
            },
        }
    }
}

fn rate(text: &str) -> anyhow::Result<f64> {
    let rate: f64 = text.parse()?;
    anyhow::ensure!(rate.is_finite() && rate >= 0.0, "`{text}` is not a rate");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        node_lifecycle: NodeLifecycle,
    }

    fn parse(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let arguments = std::iter::once(&"command").chain(arguments);
        Command::try_parse_from(arguments).map(|it| it.node_lifecycle.settings())
    }

    #[test]
    fn without_flags_it_is_as_in_kubernetes() {
        assert_eq!(parse(&[]).unwrap(), Settings::default());
    }

    #[test]
    fn rates_and_times_can_be_set() {
        let settings = parse(&["--node-eviction-rate=100", "--node-monitor-grace-period=12s"]).unwrap();
        assert!((settings.rates.normal - 100.0).abs() < f64::EPSILON);
        assert_eq!(settings.grace.running, Duration::from_secs(12));
        assert!(parse(&["--node-eviction-rate=-1"]).is_err());
        assert!(parse(&["--node-monitor-period=0s"]).is_err());
    }
}
