package replicator

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // for machines that have no time zones

	"github.com/netresearch/go-cron"
)

const (
	whatSchedule = "a cron expression of five fields, such as `0 3 * * *`, that comes within five years"
	whatTimezone = "a time zone such as `Europe/Berlin`"
	whatEvery    = "hours, minutes and seconds, such as `90s`, `15m` or `1h30m`, from `1s` to `2562047h`"
	// maxSchedule is the most bytes of a cron expression. Listings keep it for each job.
	maxSchedule = 1_000
)

var (
	scheduleForm = func() *regexp.Regexp {
		const item = `(\*|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?`
		const list = item + `(,` + item + `)*`
		return regexp.MustCompile(`^` + list + `( ` + list + `){4}$`)
	}()
	everyForm  = regexp.MustCompile(`^([0-9]+h)?([0-9]+m)?([0-9]+s)?$`)
	cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)
)

// Periodic reports whether the replication runs again and again. It is false for nil.
func (r *Replication) Periodic() bool { return r != nil && (r.Schedule != "" || r.Every > 0) }

// NextRun returns when a periodic replication runs next, not before now. began is when its latest run began, zero if
// there was none. It fails only for a replication that parsing did not return, or if this machine does not know the
// time zone.
func (r *Replication) NextRun(began, now time.Time) (time.Time, error) {
	if r.Schedule == "" {
		next := wholeSeconds(began).Add(time.Duration(r.Every) * time.Second)
		if began.IsZero() || next.Before(now) {
			next = now
		}
		return next, nil
	}
	times, err := cronParser.Parse(r.Schedule)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading `schedule`: %w", err)
	}
	zone, err := time.LoadLocation(r.Timezone) // UTC if it is empty
	if err != nil {
		return time.Time{}, fmt.Errorf("reading `timezone`: %w", err)
	}
	// The expression is about what a clock in the zone shows. Each such time has one instant here, so the zone's changes
	// neither drop nor repeat a run.
	for shown := times.Next(clockTime(now.In(zone))); !shown.IsZero(); shown = times.Next(shown) {
		if next := instant(shown, zone); next.After(now) {
			return next, nil
		}
	}
	return time.Time{}, errors.New("the `schedule` does not come within five years")
}

// clockTime returns what a clock shows at t, as a time in UTC.
func clockTime(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns when a clock in a zone first shows a time. For a time that is skipped it returns when the clock is
// put forward.
func instant(shown time.Time, zone *time.Location) time.Time {
	t := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, zone)
	since, until := t.ZoneBounds()
	if clock := clockTime(t); clock.Before(shown) {
		return until
	} else if clock.After(shown) {
		return since
	}
	if since.IsZero() {
		return t
	}
	_, offset := t.Zone()
	_, before := since.Add(-1).Zone()
	if earlier := t.Add(time.Duration(offset-before) * time.Second); earlier.Before(since) {
		return earlier // the clock was put back, and shows the time twice
	}
	return t
}

// periodic parses the fields that say when a document's replication runs.
func (f *fields) periodic(r *Replication) {
	schedule, scheduled := f.text("schedule", whatSchedule)
	timezone, zoned := f.text("timezone", whatTimezone)
	every, repeated := f.text("every", whatEvery)
	switch {
	case scheduled && repeated:
		f.fail("every", "`schedule` and `every` are mutually exclusive")
	case zoned && !scheduled:
		f.fail("timezone", "parameter `timezone` is only for `schedule`")
	case (scheduled || repeated) && r.Continuous:
		f.fail("continuous", "parameter `continuous` must not be true with `schedule` or `every`")
	}
	if zone, err := time.LoadLocation(timezone); zoned && (err != nil || timezone == "" || zone == time.Local) {
		f.mustBe("timezone", whatTimezone)
	}
	if repeated {
		interval, err := time.ParseDuration(every)
		if err != nil || !everyForm.MatchString(every) || interval < time.Second {
			f.mustBe("every", whatEvery)
		}
		r.Every = int(interval / time.Second)
	}
	if scheduled {
		r.Schedule, r.Timezone = strings.Join(strings.Fields(schedule), " "), timezone
		valid := len(schedule) <= maxSchedule && scheduleForm.MatchString(r.Schedule)
		if valid && f.found.err == nil {
			_, err := r.NextRun(time.Time{}, time.Now())
			valid = err == nil
		}
		if !valid {
			f.mustBe("schedule", whatSchedule)
		}
	}
}

// refuseOfDocuments refuses what only documents may have.
func (f *fields) refuseOfDocuments() {
	for _, name := range []string{"schedule", "every", "timezone", "paused"} {
		if _, given := f.values[name]; given {
			f.fail(name, "parameter `%s` is only for replication documents", name)
		}
	}
}
