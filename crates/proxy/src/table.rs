//! The kernel's table, kept equal to the desired rules.
//!
//! Every change is one transaction. The table of a process that was killed is complete, and the next start replaces it by one
//! transaction, too.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::decide::NodeFacts;
use crate::ledger::{Difference, RuleSet};
use crate::nft::{self, Settings};
use crate::program::{self, ProgramError};
use crate::rules::Name;

const NFT: &str = "nft";
/// Most bytes of a listing that are read.
const LISTING_BYTES_MAX: u64 = 256 << 10;
/// Age at which stale chains are deleted.
const STALE_AGE: Duration = Duration::from_secs(1);

/// The proxy's table.
#[derive(Debug, Default)]
pub struct KernelTable {
    /// Chains that are empty and unused, since when.
    stale: BTreeMap<Name, Instant>,
    /// The chain that dispatches to Services, as `nft` listed it after the last replacement.
    listed: Option<String>,
}

impl KernelTable {
    /// Replaces the whole table.
    ///
    /// # Errors
    /// `nft` cannot be run or rejects the transaction; the table is unchanged.
    pub async fn replace(
        &mut self,
        settings: &Settings,
        node: &NodeFacts,
        rules: &RuleSet,
    ) -> Result<(), ProgramError> {
        self.listed = None;
        apply(nft::replace(settings, node, rules)).await?;
        self.stale.clear();
        self.listed = Some(list(settings).await?);
        Ok(())
    }

    /// Applies a difference.
    ///
    /// # Errors
    /// `nft` cannot be run or rejects the transaction: others have changed the table.
    pub async fn update(&mut self, settings: &Settings, steps: &Difference) -> Result<(), ProgramError> {
        apply(nft::update(&settings.table, steps)).await?;
        for name in &steps.new_chains {
            self.stale.remove(name);
        }
        let now = Instant::now();
        self.stale.extend(steps.stale_chains.iter().map(|it| (it.clone(), now)));
        Ok(())
    }

    /// Deletes chains that have been stale for a second.
    ///
    /// # Errors
    /// `nft` cannot be run or rejects the transaction.
    pub async fn delete_stale(&mut self, settings: &Settings) -> Result<(), ProgramError> {
        let now = Instant::now();
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= STALE_AGE;
        let names: Vec<Name> = self.stale.iter().filter(|(_, since)| is_old(since)).map(|it| it.0.clone()).collect();
        if names.is_empty() {
            return Ok(());
        }
        for name in &names {
            self.stale.remove(name);
        }
        apply(nft::delete_chains(&settings.table, names.iter())).await
    }

    /// Whether the chain that dispatches to Services is as this process wrote it. The handles in the listing differ if the table was
    /// removed and written again.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub async fn is_intact(&self, settings: &Settings) -> Result<bool, ProgramError> {
        match list(settings).await {
            Ok(listed) => Ok(self.listed.as_ref() == Some(&listed)),
            // A chain or the table is missing.
            Err(ProgramError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the table exists, at a cost that does not depend on its size.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub async fn exists(table: &nft::Table) -> Result<bool, ProgramError> {
        let arguments = nft::existence_arguments(table);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match program::run(NFT, &arguments, String::new(), 0).await {
            Ok(_) => Ok(true),
            Err(ProgramError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the table.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub async fn remove(table: &nft::Table) -> Result<(), ProgramError> {
        apply(nft::remove(table)).await
    }
}

async fn apply(script: String) -> Result<(), ProgramError> {
    program::run(NFT, &["-f", "-"], script, 0).await.map(|_| ())
}

async fn list(settings: &Settings) -> Result<String, ProgramError> {
    let arguments = nft::list_arguments(&settings.table);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    program::run(NFT, &arguments, String::new(), LISTING_BYTES_MAX).await
}
