//! What a session does for a client of `capacity`.

use linerate_core::capacity::CapacityRequest;
use linerate_core::session::message::RefusalReason;
use linerate_core::session::operation::Reply;

use super::{Session, Stage};
use crate::capacity::{Holding, HoldingNews};
use crate::clock::now;
use crate::endpoint::ServeEvent;

impl Session<'_> {
    pub(super) fn hold(&mut self, request: &CapacityRequest) {
        let owner = self.context.limits.connections;
        let place = self.lease.place();
        let asked = request.connections;
        let free = self.context.shares.take(asked, owner).map_err(|others| {
            format!(
                "other clients hold {others} of the {owner} connections that the endpoint allows, \
                 {asked} were asked for"
            )
        });
        let share = match free.and_then(|share| place.begin_test().map(|()| share)) {
            Ok(share) => share,
            Err(message) => {
                self.server.refuse(RefusalReason::Busy, message);
                return;
            }
        };
        let way = (self.local, self.peer.ip());
        match Holding::start(request, way, self.token, (share, owner)) {
            Ok(holding) => self.stage = Stage::Holding(Box::new(holding)),
            Err(message) => {
                self.lease.place().end_test();
                self.server.refuse(RefusalReason::Test, message);
            }
        }
    }

    pub(super) fn release(&mut self) {
        if let Stage::Holding(holding) = &mut self.stage {
            holding.release();
        }
    }

    pub(super) fn tell_held(&mut self, news: HoldingNews) {
        match news {
            HoldingNews::Ready(ports) => self.server.reply(now(), Reply::Hold(ports)),
            HoldingNews::Progress(progress) => self.server.held(progress),
            HoldingNews::Released(half) => {
                self.end_holding();
                let (tcp, udp) = (half.tcp.most, half.udp.most);
                (self.context.log)(ServeEvent::Tested {
                    peer: self.peer,
                    summary: format!("held {tcp} connections and {udp} UDP sockets"),
                });
                self.server.reply(now(), Reply::Release(half));
            }
            HoldingNews::Refused(message) => {
                self.end_holding();
                self.server.refuse(RefusalReason::Test, message);
            }
            HoldingNews::Failed(message) => {
                self.end_holding();
                self.server.hang_up(RefusalReason::Failed, message);
            }
        }
    }

    fn end_holding(&mut self) {
        self.stage = Stage::Idle;
        self.lease.place().end_test();
    }
}
