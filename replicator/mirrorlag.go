package replicator

import (
	"slices"
	"time"
)

const (
	// LagSlot is the length of a slot of [MirrorLags], and maxLagSlots the number of slots that are kept: those of a day.
	LagSlot     = 5 * time.Minute
	maxLagSlots = int(24 * time.Hour / LagSlot)
)

// unknownLag is the lag of a slot in which nothing looked.
const unknownLag = -1

// MirrorLags is how far the target of a mirror was behind in the last day. The zero value has no slots.
type MirrorLags struct {
	// Slot is the number of the latest slot from the Unix epoch.
	Slot int64 `json:"slot"`
	// Lags has the largest lag of each slot in whole seconds, that of Slot last, and unknownLag for a slot in which nothing looked.
	Lags []int64 `json:"lags"`
}

func lagSlotAt(at time.Time) int64 { return at.Unix() / int64(LagSlot/time.Second) }

// Add returns the lags with what a look has found at a time. A time before the latest slot counts in that: the clocks of nodes differ.
func (l MirrorLags) Add(at time.Time, lag time.Duration) MirrorLags {
	l.Lags = slices.Clone(l.Lags)
	l.moveTo(lagSlotAt(at))
	if len(l.Lags) == 0 {
		l.Lags = []int64{unknownLag}
	}
	last := &l.Lags[len(l.Lags)-1]
	*last = max(*last, int64(lag/time.Second))
	return l
}

// moveTo makes a slot the latest one, if it is later, and drops those that are older than a day then.
func (l *MirrorLags) moveTo(slot int64) {
	if len(l.Lags) == 0 || slot-l.Slot >= int64(maxLagSlots) {
		*l = MirrorLags{Slot: slot}
		return
	}
	for ; l.Slot < slot; l.Slot++ {
		l.Lags = append(l.Lags, unknownLag)
	}
	l.Lags = l.Lags[max(0, len(l.Lags)-maxLagSlots):]
}

// Until returns when the first slot of the last day begins that is known, and the lags of the slots since then up to now. The lag of a
// slot in which nothing looked is nil.
func (l MirrorLags) Until(now time.Time) (since time.Time, lags []*int64) {
	l.Lags = slices.Clone(l.Lags)
	l.moveTo(lagSlotAt(now))
	lags = make([]*int64, len(l.Lags))
	for i, lag := range l.Lags {
		if lag != unknownLag {
			lags[i] = &lag
		}
	}
	return time.Unix((l.Slot-int64(len(lags))+1)*int64(LagSlot/time.Second), 0).UTC(), lags
}
