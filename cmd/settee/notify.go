package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"settee/cmd/settee/internal/lifecycle"
)

// stopMargin is how much longer than the grace period the service manager lets a node take to stop: the store is
// closed after the grace period.
const stopMargin = 10 * time.Second

// notifyPart tells the service manager that the node runs, and then that it stops. Without systemd it does nothing.
func (n *node) notifyPart() lifecycle.Part {
	return lifecycle.Part{
		Start: func(context.Context) error {
			n.notify(daemon.SdNotifyReady)
			return nil
		},
		// The limit follows the setting, so the unit need not repeat it.
		Leave: func() { n.notifyStopping(n.drainTime()) },
		Drain: func() { n.notifyStopping(0) }, // a node that has failed does not leave
	}
}

// notifyStopping says that the node stops, and asks for its grace period after a time.
func (n *node) notifyStopping(after time.Duration) {
	n.notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (after + n.gracePeriod() + stopMargin).Microseconds()))
}

// notify sends a message to the service manager, if there is one.
func (n *node) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Error().Err(err).Msg("the service manager cannot be notified")
	}
}

// beat tells the service manager's watchdog twice per interval that the node works, until ctx ends. A node that does
// not work sends nothing, and is restarted after the interval. A store that only refuses writes is no reason: a restart
// does not help before the cause is removed, and the node can still read.
func (n *node) beat(ctx context.Context) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Error().Err(err).Msg("the watchdog of the service manager cannot be served")
	}
	if interval > 0 {
		n.beatWithin(ctx, interval)
	}
}

func (n *node) beatWithin(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		checking, cancel := context.WithTimeout(ctx, interval/2)
		err := n.works(checking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.log.Error().Err(err).Msg("this node does not work, so the service manager's watchdog is not told that it does")
		default:
			n.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
