//! Line between a server and the nodes of its cluster, on which answers are lost or late.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use scylla_proxy::{
    Condition, Node, Proxy, Reaction as _, ResponseOpcode, ResponseReaction, ResponseRule,
    RunningProxy, ShardAwareness,
};

pub(super) struct Line {
    proxy: RunningProxy,
    /// Address of the first node, for the server. The driver takes the port from here and the
    /// addresses from the nodes.
    pub(super) address: SocketAddr,
}

impl Line {
    pub(super) async fn to(nodes: &[SocketAddr]) -> Self {
        let port = free_port(nodes);
        let node = |node: &SocketAddr| {
            let address = SocketAddr::new(node.ip(), port);
            let rules = Some(Vec::new());
            Node::new(*node, address, ShardAwareness::Unaware, None, rules)
        };
        Self {
            proxy: Proxy::new(nodes.iter().map(node)).run().await.unwrap(),
            address: SocketAddr::new(nodes[0].ip(), port),
        }
    }

    /// Loses so many answers of a kind, of each node.
    pub(super) fn lose(&mut self, kind: Condition, times: usize) {
        let lost = kind.and(Condition::TrueForLimitedTimes(times));
        self.rule(lost, &ResponseReaction::drop_frame());
    }

    /// Loses every answer until it is healed.
    pub(super) fn lose_all(&mut self) {
        self.rule(Condition::True, &ResponseReaction::drop_frame());
    }

    /// Every answer comes so much later.
    pub(super) fn delay(&mut self, by: Duration) {
        self.rule(Condition::True, &ResponseReaction::delay(by));
    }

    fn rule(&mut self, kind: Condition, reaction: &ResponseReaction) {
        let answers = Condition::ResponseOpcode(ResponseOpcode::Result).and(kind);
        for node in &mut self.proxy.running_nodes {
            let rule = ResponseRule(answers.clone(), reaction.clone());
            node.change_response_rules(Some(vec![rule]));
        }
    }

    pub(super) fn heal(&mut self) {
        self.proxy.turn_off_rules();
    }
}

/// A port that is free at the addresses of all nodes.
fn free_port(nodes: &[SocketAddr]) -> u16 {
    loop {
        let first = TcpListener::bind((nodes[0].ip(), 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let is_free = |node: &SocketAddr| TcpListener::bind((node.ip(), port)).is_ok();
        if nodes[1..].iter().all(is_free) {
            return port;
        }
    }
}

/// To a write without a condition. (Rows have their kind in them, and so has what was prepared.)
pub(super) fn written() -> Condition {
    let kind = |kind: u8| Condition::BodyContainsCaseSensitive(Box::new([0, 0, 0, kind]));
    kind(1)
        .and(Condition::not(kind(2)))
        .and(Condition::not(kind(4)))
}

/// To a write with a condition.
pub(super) fn decided() -> Condition {
    Condition::BodyContainsCaseSensitive(b"[applied]".as_slice().into())
}
