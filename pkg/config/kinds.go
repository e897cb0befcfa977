package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// kind is the type of a setting: it parses the setting's text, and want describes the allowed
// values, completing "it must be ...".
type kind[T any] struct {
	want  string
	unit  string // of a number, in the plural; empty for a plain count and for what is no number
	parse func(text string) (T, bool)
	// wrong, if not nil, returns the invalid part of a refused text.
	wrong func(text string) string
	// instead, if not nil, returns what becomes of an accepted text that does not count as it is, such as "counts as 100",
	// or "" if it does. It completes a warning.
	instead func(text string) string
}

// whole accepts a whole number from low on, in decimal. One above high counts as high.
func whole[T int | int64](low, high T) kind[T] {
	return kind[T]{
		want: fmt.Sprintf("a whole number from %d to %d", low, high),
		parse: func(text string) (T, bool) {
			n, err := strconv.ParseInt(text, 10, 64) // with ErrRange it is the nearest one
			return T(min(n, int64(high))), (err == nil || errors.Is(err, strconv.ErrRange)) && n >= int64(low)
		},
		instead: func(text string) string {
			if n, err := strconv.ParseInt(text, 10, 64); err != nil || n > int64(high) {
				return fmt.Sprintf("counts as %d", high)
			}
			return ""
		},
	}
}

// portNumber accepts the number of a port, or 0.
func portNumber() kind[int] {
	k := whole(0, math.MaxUint16)
	parse, instead := k.parse, k.instead
	k.instead = nil
	k.parse = func(text string) (int, bool) {
		n, ok := parse(text)
		return n, ok && instead(text) == ""
	}
	return k
}

// decimal accepts a number from low on, with or without a fraction. One above high counts as high.
func decimal(low, high float64) kind[float64] {
	return kind[float64]{
		want: fmt.Sprintf("a number from %g to %g, such as %g", low, high, (low+high)/2),
		parse: func(text string) (float64, bool) {
			n, err := strconv.ParseFloat(text, 64)
			plain := !strings.ContainsFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
			return min(n, high), err == nil && plain && n >= low
		},
		instead: func(text string) string {
			if n, _ := strconv.ParseFloat(text, 64); n > high {
				return fmt.Sprintf("counts as %g", high)
			}
			return ""
		},
	}
}

// wholeBytes accepts a size in bytes from low to high.
func wholeBytes(low, high int64) kind[int64] {
	k := whole(low, high)
	k.want, k.unit = fmt.Sprintf("a whole number of bytes from %d to %d", low, high), "bytes"
	return k
}

// memoryBytes accepts a size in bytes that a node can work with, or 0.
func memoryBytes() kind[int64] {
	const least = 64 << 20
	k := wholeBytes(0, math.MaxInt64)
	k.want = fmt.Sprintf("a whole number of bytes of at least %d, or 0", least)
	parse := k.parse
	k.parse = func(text string) (int64, bool) {
		n, ok := parse(text)
		return n, ok && (n == 0 || n >= least)
	}
	return k
}

// bytesOrInfinity accepts a size in bytes, or infinity, which is math.MaxInt64.
func bytesOrInfinity() kind[int64] {
	number := wholeBytes(1, math.MaxInt64)
	return orInfinity(number, math.MaxInt64)
}

func milliseconds(low, high time.Duration) kind[time.Duration] {
	return duration(time.Millisecond, "milliseconds", low, high)
}

func seconds(low, high time.Duration) kind[time.Duration] {
	return duration(time.Second, "seconds", low, high)
}

// duration accepts a time from low on, as a whole number of units. One above high counts as high.
func duration(unit time.Duration, name string, low, high time.Duration) kind[time.Duration] {
	number := whole(int64(low/unit), int64(high/unit))
	return kind[time.Duration]{
		want: fmt.Sprintf("a whole number of %s from %d to %d", name, low/unit, high/unit),
		unit: name,
		parse: func(text string) (time.Duration, bool) {
			n, ok := number.parse(text)
			return time.Duration(n) * unit, ok
		},
		instead: number.instead,
	}
}

// millisecondsOrInfinity accepts a time in milliseconds, or infinity, which is 0.
func millisecondsOrInfinity(low, high time.Duration) kind[time.Duration] {
	return orInfinity(milliseconds(low, high), 0)
}

// orInfinity accepts what of accepts, and infinity, which is the value infinite.
func orInfinity[T any](of kind[T], infinite T) kind[T] {
	k := of
	k.want += ", or infinity"
	k.parse = func(text string) (T, bool) {
		if text == "infinity" {
			return infinite, true
		}
		return of.parse(text)
	}
	k.instead = func(text string) string {
		if text == "infinity" {
			return ""
		}
		return of.instead(text)
	}
	return k
}

// orNothing accepts what k accepts, and the empty text, whose value is the zero value.
func orNothing[T any](k kind[T]) kind[T] {
	parse := k.parse
	k.parse = func(text string) (value T, ok bool) {
		if text == "" {
			return value, true
		}
		return parse(text)
	}
	return k
}

// millisecondsFrom accepts a time in milliseconds, and raises one below least to least.
func millisecondsFrom(least, high time.Duration) kind[time.Duration] {
	of := milliseconds(time.Millisecond, high)
	k := of
	k.parse = func(text string) (time.Duration, bool) {
		n, ok := of.parse(text)
		return max(n, least), ok
	}
	k.instead = func(text string) string {
		if n, _ := of.parse(text); n < least {
			return fmt.Sprintf("counts as %d", least.Milliseconds())
		}
		return of.instead(text)
	}
	return k
}

// headerText accepts the value of a header in ASCII.
func headerText() kind[string] {
	return kind[string]{
		want: "printable ASCII characters",
		parse: func(text string) (string, bool) {
			odd := strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
			return text, !odd
		},
	}
}

// authPlugins accepts CouchDB's list of authentication plugins. There are three. They are tried in
// order, and the second one accepts everything. The third one is for access tokens, which settee
// always supports. The value reports whether the session plugin comes before the second one.
func authPlugins() kind[bool] {
	const session, noop, ibm = "couch_replicator_auth_session", "couch_replicator_auth_noop", "couch_replicator_auth_ibm"
	return kind[bool]{
		want: "a list of " + session + ", " + noop + " and " + ibm + ", or one of them",
		parse: func(text string) (bool, bool) {
			list := items(text)
			odd := slices.ContainsFunc(list, func(plugin string) bool { return plugin != session && plugin != noop && plugin != ibm })
			list = slices.DeleteFunc(list, func(plugin string) bool { return plugin == ibm })
			return len(list) == 0 || list[0] == session, !odd
		},
	}
}

// tokenServer accepts the https URL of a server that gives access tokens.
func tokenServer() kind[string] {
	return kind[string]{
		want: "an https URL without a user and a query",
		parse: func(text string) (string, bool) {
			u, err := url.Parse(text)
			return text, err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
		},
	}
}

func boolean() kind[bool] {
	return kind[bool]{
		want:  "true or false",
		parse: func(text string) (bool, bool) { return text == "true", text == "true" || text == "false" },
	}
}

// ipAddress accepts an IP address, or any for all addresses.
func ipAddress() kind[netip.Addr] {
	return kind[netip.Addr]{
		want: "an IP address such as 127.0.0.1 or ::1, or any for all addresses of this machine",
		parse: func(text string) (netip.Addr, bool) {
			if text == "any" {
				return netip.IPv6Unspecified(), true
			}
			addr, err := netip.ParseAddr(text)
			return addr, err == nil
		},
	}
}

// storeURL accepts the URL of a store. It does not check the engine: opening the store does.
func storeURL() kind[string] {
	return kind[string]{
		want: "a URL such as pebble:///var/lib/settee, pebble:./data, " +
			"fdb:///etc/foundationdb/fdb.cluster?prefix=settee or mem:",
		parse: func(text string) (string, bool) {
			u, err := url.Parse(text)
			return text, err == nil && u.Scheme != ""
		},
	}
}

// identifier accepts printable ASCII without spaces, or nothing.
func identifier(most int) kind[string] {
	return kind[string]{
		want: fmt.Sprintf("at most %d ASCII letters, digits or punctuation marks, without spaces", most),
		parse: func(text string) (string, bool) {
			foreign := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
			return text, len(text) <= most && !foreign
		},
	}
}

// protocols accepts a list of the allowed words, separated by commas. The value is in the order
// of the text, in lower case, without duplicates.
func protocols(allowed ...string) kind[[]string] {
	return list("one or more of "+strings.Join(allowed, ", ")+", separated by commas",
		func(text string) (unique []string) {
			for _, item := range items(strings.ToLower(text)) {
				if !slices.Contains(unique, item) {
					unique = append(unique, item)
				}
			}
			return unique
		},
		func(item string) (string, bool) { return item, slices.Contains(allowed, item) })
}

// logLevel accepts one of CouchDB's log levels, by name or number.
func logLevel() kind[zerolog.Level] {
	return kind[zerolog.Level]{
		want: "debug, info, notice, warning, error, critical, alert, emergency or none",
		parse: func(text string) (zerolog.Level, bool) {
			switch strings.ToLower(text) {
			case "debug", "1":
				return zerolog.DebugLevel, true
			case "info", "2", "notice", "3":
				return zerolog.InfoLevel, true
			case "warning", "warn", "4":
				return zerolog.WarnLevel, true
			case "error", "err", "5":
				return zerolog.ErrorLevel, true
			case "critical", "crit", "6", "alert", "7", "emergency", "emerg", "8":
				return zerolog.FatalLevel, true
			case "none", "9":
				return zerolog.Disabled, true
			}
			return zerolog.NoLevel, false
		},
	}
}
