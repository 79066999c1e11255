//! `wideroom webhook`: lists the positions and the dead letters of a running server's webhooks, and sends dead letters again.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use crate::cli::admin_client::{AdminFlags, operator_token, reason, request};
use crate::cli::error::Error;
use crate::cli::{REPEATABLE, print, signals};
use crate::config::Config;

/// Deadline of an answer. A redelivery begins no further try after half of it.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 4 << 20;

#[derive(clap::Args)]
pub(in crate::cli) struct WebhookFlags {
    #[command(subcommand)]
    action: WebhookAction,
}

#[derive(clap::Subcommand)]
enum WebhookAction {
    /// Print the position and the dead letters of each webhook
    List(AdminFlags),
    /// Send the dead letters of a webhook again, and delete those that its receiver takes
    Redeliver {
        /// Name of the webhook
        #[arg(value_name = "NAME")]
        name: String,
        /// Id of one event, as the list shows it; without it all
        #[arg(long, value_name = "ID")]
        event: Option<String>,
        #[command(flatten)]
        admin: AdminFlags,
    },
}

pub(in crate::cli) fn run(flags: &WebhookFlags) -> Result<(), Error> {
    let (admin, method, path) = match &flags.action {
        WebhookAction::List(admin) => (admin, Method::GET, "/webhooks".to_owned()),
        WebhookAction::Redeliver { name, event, admin } => {
            let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let query = event
                .as_deref()
                .map_or_else(String::new, |event| format!("?event={}", encoded(event)));
            let path = format!("/webhooks/{}/redeliver{query}", encoded(name));
            (admin, Method::POST, path)
        }
    };
    let config = admin.config()?;
    signals::run(async move |stop| {
        let answer = stop.run_until_cancelled(ask(&config, method, &path)).await;
        print(answer.ok_or(Error::Interrupted(REPEATABLE))??.trim_end())
    })
}

async fn ask(config: &Config, method: Method, path: &str) -> Result<String, Error> {
    let failed = |why: String| Error::WebhookCommand(why);
    let address = config.admin_listen.ok_or_else(|| {
        failed("the command needs the running server's --admin-listen, which is off".to_owned())
    })?;
    let token = operator_token(&config.data)?;
    let response = timeout(ANSWER_MAX, request(address, Some(&token), method, path))
        .await
        .map_err(|_| failed(format!("the server at {address} does not answer")))?
        .map_err(|why| {
            failed(format!(
                "no server answers at {address}: {why}; name its address with --admin-listen"
            ))
        })?;
    if response.status() != StatusCode::OK {
        return Err(failed(format!(
            "the server at {address} refuses: {}",
            reason(response).await
        )));
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
    let body = timeout(ANSWER_MAX, body).await.ok().and_then(Result::ok);
    body.and_then(|body| String::from_utf8(body.to_bytes().into()).ok())
        .ok_or_else(|| failed(format!("the server at {address} broke off")))
}
