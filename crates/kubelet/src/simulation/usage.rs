//! Resources that simulated containers use: an amount, or a share of the request.

use api::core::v1::Container;
use api::quantity::Quantity;

use crate::usage::Usage;

/// The request that a share is taken of if a container has none: 100m.
const CPU_NANOCORES: u64 = 100_000_000;
/// The request that a share is taken of if a container has none: 128Mi.
const MEMORY_BYTES: u64 = 128 << 20;
/// The largest share in percent.
const PERCENT_MAX: u32 = 100_000;

/// Usage of one resource by each container of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A share of the request, in percent.
    Percent(u32),
    /// An amount: billionths of a processor, or bytes.
    Amount(u64),
}

impl Default for Rule {
    fn default() -> Self {
        Self::Percent(50)
    }
}

impl Rule {
    /// Reads `250m` or `70%` as usage of the processor.
    pub(super) fn cpu(text: &str) -> Option<Self> {
        Self::parse(text, -9)
    }

    /// Reads `64Mi` or `70%` as usage of memory.
    pub(super) fn memory(text: &str) -> Option<Self> {
        Self::parse(text, 0)
    }

    fn parse(text: &str, scale: i32) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            return percent.parse().ok().filter(|it| *it <= PERCENT_MAX).map(Self::Percent);
        }
        let quantity = Quantity::parse(text).ok()?;
        amount(&quantity, scale).map(Self::Amount)
    }

    fn of(self, request: Option<&Quantity>, scale: i32, default: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Percent(percent) => {
                let request = request.and_then(|it| amount(it, scale)).unwrap_or(default);
                let share = u128::from(request).saturating_mul(u128::from(percent)).checked_div(100);
                u64::try_from(share.unwrap_or_default()).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A quantity in units of 10^`scale`; none if it is negative or does not fit.
fn amount(quantity: &Quantity, scale: i32) -> Option<u64> {
    // Nine digits more than the value must fit: quantities wrap beyond that.
    let fits = quantity.as_approximate_f64() < 9e9 || scale == 0 && quantity.as_approximate_f64() < 9e18;
    u64::try_from(quantity.scaled_value(scale)).ok().filter(|_| fits)
}

/// Usage of a container.
pub(super) fn of_container(container: &Container, cpu: Rule, memory: Rule) -> Usage {
    let requests = &container.resources.requests;
    Usage {
        cpu_nanocores: cpu.of(requests.get("cpu"), -9, CPU_NANOCORES),
        memory_bytes: memory.of(requests.get("memory"), 0, MEMORY_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_shares_are_read() {
        assert_eq!(Rule::cpu("250m"), Some(Rule::Amount(250_000_000)));
        assert_eq!(Rule::memory("1Ki"), Some(Rule::Amount(1024)));
        assert_eq!(Rule::cpu("70%"), Some(Rule::Percent(70)));
        for wrong in ["", "-1", "x", "-5%", "1.5%", "100001%", "1e30"] {
            assert_eq!((Rule::cpu(wrong), Rule::memory(wrong)), (None, None), "{wrong}");
        }
    }

    #[test]
    fn share_is_of_the_request_or_of_its_default() {
        let with = |requests: &[(&str, &str)]| {
            let mut container = Container::default();
            for (name, value) in requests {
                container.resources.requests.insert((*name).into(), Quantity::parse(value).unwrap());
            }
            of_container(&container, Rule::Percent(150), Rule::default())
        };
        assert_eq!(with(&[]), Usage { cpu_nanocores: 150_000_000, memory_bytes: 64 << 20 });
        let requested = with(&[("cpu", "2"), ("memory", "1Gi")]);
        assert_eq!(requested, Usage { cpu_nanocores: 3_000_000_000, memory_bytes: 512 << 20 });
    }
}
