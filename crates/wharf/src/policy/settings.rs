//! In: what the configuration's `[policy]` says. Out: the rules it stands for. Whatever it leaves unsaid is strict.

use super::{DEFAULT_COMMANDS, Policy};
use crate::config::PolicySettings;

impl From<&PolicySettings> for Policy {
    fn from(settings: &PolicySettings) -> Self {
        let written = settings.commands.iter().flatten().cloned();
        let defaults = DEFAULT_COMMANDS.iter().filter(|_| settings.extend_defaults).map(|c| (*c).to_owned());
        let mut commands: Vec<String> = defaults.chain(written).collect();
        let mut strict = settings.strict.unwrap_or(true);
        if let Some(within) = &settings.commands_within {
            if strict {
                commands.retain(|command| within.contains(command));
            } else {
                // Where any command goes there is no list to take away from: the project's list is all that is left.
                commands.clone_from(within);
                strict = true;
            }
        }
        Self::strict()
            .with_strict(strict)
            .replace_commands(commands)
            .with_packages(settings.packages.clone())
            .with_env_allowed(settings.env_allow.iter().cloned())
            .with_allowed_argv(settings.arguments_allow.clone())
            .with_private_networks(settings.private_networks)
            .with_scan(settings.scan)
            .with_asked(settings.ask.iter().cloned())
    }
}
