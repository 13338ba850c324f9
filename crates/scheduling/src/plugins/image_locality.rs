//! ImageLocality: nodes are liked that have the pod's images, the more so the more nodes have them.

use api::json::{Text, Value};
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{Dependencies, MAX_NODE_SCORE, Plugin, Point, PreScore, Score, Status};

pub(super) const NAME: &str = "ImageLocality";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::Score];

const MEBIBYTE: i64 = 1 << 20;
/// Sums of image sizes below this score zero.
const MIN: i64 = 23 * MEBIBYTE;
/// Sums above this, times the number of images, have the full score.
const MAX_PER_IMAGE: i64 = 1000 * MEBIBYTE;

#[derive(Debug)]
struct ImageLocality;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(ImageLocality) as Box<dyn Plugin>)
}

impl Plugin for ImageLocality {
    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        let spec = pod.spec();
        let containers = spec.init_containers.iter().chain(&spec.containers).map(|container| &container.image);
        let volumes = spec.volumes.iter().filter_map(|volume| volume.image.as_ref()).map(|image| &image.reference);
        let images: Vec<Text> = containers.chain(volumes).map(|image| normalized(image)).collect();
        let known = images.iter().map(|image| cluster.cache.image(image)).collect();
        PreScore::Ask(Box::new(Images { images, known, nodes: cluster.cache.order().len() }))
    }
}

/// An image without a tag means the latest.
fn normalized(image: &str) -> Text {
    let has_tag = image.rfind(':').is_some_and(|colon| image.rfind('/').is_none_or(|slash| colon > slash));
    if has_tag { image.into() } else { format!("{image}:latest").into() }
}

struct Images {
    images: Vec<Text>,
    /// The size of each, and on how many nodes it is.
    known: Vec<Option<(i64, usize)>>,
    nodes: usize,
}

impl Score for Images {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::float_arithmetic,
        reason = "Kubernetes reckons in floats, and truncates"
    )]
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let mut sum: i64 = 0;
        for (image, known) in self.images.iter().zip(&self.known) {
            if let Some((size, count)) = *known
                && node.object.has_image(image)
            {
                let spread = count as f64 / self.nodes as f64;
                sum = sum.saturating_add((size as f64 * spread) as i64);
            }
        }
        let count = i64::try_from(self.images.len()).unwrap_or(i64::MAX);
        let most = MAX_PER_IMAGE.saturating_mul(count);
        let above = sum.max(MIN).min(most.max(MIN)).saturating_sub(MIN);
        Ok(MAX_NODE_SCORE.saturating_mul(above).checked_div(most.saturating_sub(MIN)).unwrap_or(0))
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::IMAGES)
    }
}
