package replicator

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// MaxMirrorPatterns is the maximum number of patterns in `mirror.include` and in `mirror.exclude`.
	MaxMirrorPatterns = 1_000
	// maxMirrorPattern is the maximum size of a pattern and of a prefix in bytes. CouchDB's names of databases have 238.
	maxMirrorPattern = 238
)

// Mirror makes a replication a mirror: Source and Target are servers, and each database of the source that it selects is
// replicated to the target. All other fields of the [Replication] apply to the replication of each database: see
// [Replication.Child].
type Mirror struct {
	// Include and Exclude are patterns of names of databases, in which `*` is any text. A database is mirrored if a pattern
	// of Include matches its name, and no pattern of Exclude does. A name that begins with an underscore matches only
	// patterns that begin with an underscore, too. Include is not empty.
	Include []string `json:"include"`
	Exclude []string `json:"exclude,omitempty"`
	// Security asks to copy the `_security` objects.
	Security bool `json:"security"`
	// Deleted says what becomes of a database of the target when its source was deleted.
	Deleted MirrorDeletion `json:"deleted"`
	// Prefix is put before the names of the target's databases.
	Prefix string `json:"prefix,omitempty"`
	// Replicators allows replicator databases at the target: `_replicator`, and names that end with `/_replicator`. A server
	// runs the replications in them, so that each of these replications would run on both servers.
	Replicators bool `json:"replicators,omitempty"`
	// Adopt allows to copy into databases that the target has, and that no mirror has made of these sources. Nothing else
	// is changed of them: they keep their `_security`, and are not deleted.
	Adopt bool `json:"adopt,omitempty"`
	// Chain allows sources that a mirror has made of other databases.
	Chain bool `json:"chain,omitempty"`
	// Verify, if not empty, is how often the two servers are compared, as a duration such as 24h. See [Mirror.VerifyEvery].
	Verify string `json:"verify,omitempty"`
}

// minVerify is the least time between two comparisons of both servers.
const minVerify = time.Minute

// VerifyEvery returns the time between two comparisons of both servers, 0 if there are none.
func (m *Mirror) VerifyEvery() time.Duration {
	every, err := time.ParseDuration(m.Verify)
	if err != nil || !everyForm.MatchString(m.Verify) || every < minVerify {
		return 0
	}
	return every
}

// MirrorDeletion is a value of Mirror.Deleted.
type MirrorDeletion string

// The values of Mirror.Deleted: a database stays at the target, or is deleted there, too.
const (
	MirrorKeeps   MirrorDeletion = "keep"
	MirrorDeletes MirrorDeletion = "delete"
)

// Mirrored is in the definition of a replication that a mirror has made for a database of its source. Such a replication
// creates its target with the parameters of the source (q, n, partitioned), except those in CreateTargetParams.
type Mirrored struct {
	// Security asks to copy the `_security` object of the source when it changes.
	Security bool `json:"security"`
	// Adopt and Chain are the mirror's.
	Adopt bool `json:"adopt,omitempty"`
	Chain bool `json:"chain,omitempty"`
}

// Selects reports whether the patterns select a database of the source by its name. [Replication.Selects] also knows
// the servers.
func (m *Mirror) Selects(database string) bool {
	return database != "" && (m.Replicators || !IsReplicatorDatabase(m.TargetName(database))) && m.matches(database)
}

func (m *Mirror) matches(database string) bool {
	matches := func(pattern string) bool {
		return strings.HasPrefix(pattern, "_") == strings.HasPrefix(database, "_") && matchPattern(pattern, database)
	}
	return slices.ContainsFunc(m.Include, matches) && !slices.ContainsFunc(m.Exclude, matches)
}

// LeavesReplications reports whether a database that the patterns select is left out because it would be a replicator database at the
// target, so that its replications would run there, too.
func (m *Mirror) LeavesReplications(database string) bool {
	return !m.Replicators && IsReplicatorDatabase(m.TargetName(database)) && m.matches(database)
}

// maxMirroredName is the maximum size of the name of a database that a mirror mirrors, in bytes. CouchDB's have 238.
const maxMirroredName = 1_000

// Unmirrorable says why a mirror leaves out a database of its source that it selects, or returns "". The name comes from the
// source, and becomes a part of URLs and keys.
func Unmirrorable(database string) string {
	if len(database) > maxMirroredName {
		return fmt.Sprintf("its name has %d bytes, and the most is %d", len(database), maxMirroredName)
	}
	for segment := range strings.SplitSeq(database, "/") {
		if segment == "." || segment == ".." {
			return "its name is a step in a path"
		}
	}
	if strings.ContainsFunc(database, unicode.IsControl) {
		return "its name has control characters"
	}
	return ""
}

// TargetName returns the name that a database of the source has at the target.
func (m *Mirror) TargetName(database string) string { return m.Prefix + database }

// matchPattern reports whether a pattern, in which `*` is any text, matches the whole text. It takes a time that is
// proportional to the product of both lengths at most.
func matchPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part) // the leftmost place leaves the most text for the rest
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// Selects reports whether a mirror mirrors a database of its source, as far as the URLs of the servers tell. See [Mirror.SelectsAt].
// Mirror must not be nil.
func (r *Replication) Selects(database string) bool {
	return r.Mirror.SelectsAt(database, r.SameServer())
}

// SelectsAt is Selects for a mirror whose source may be its target. Such a mirror does not mirror its own copies, whose names
// begin with the prefix.
func (m *Mirror) SelectsAt(database string, sameServer bool) bool {
	return (!sameServer || !strings.HasPrefix(database, m.Prefix)) && m.Selects(database)
}

// SameServer reports whether the URLs of a mirror's source and target are of one server. Two spellings of a URL may be, too.
func (r *Replication) SameServer() bool { return r.Source.canonicalURL() == r.Target.canonicalURL() }

// MirrorServer returns the key of who answers for a mirror's source, as [Endpoint.Route] returns it for its databases.
func (r *Replication) MirrorServer() string {
	server, _, _ := r.Child("x").Source.Route()
	return server
}

// Child returns the replication of a database of a mirror's source: the mirror's definition with the URLs of the two
// databases. Its base replication id is the base id of a replication of these URLs by another document. Names in URLs
// are percent-encoded except letters, digits and `-_.~`. Mirror must not be nil.
func (r *Replication) Child(database string) *Replication {
	child := *r
	child.Mirror, child.Mirrored = nil, &Mirrored{Security: r.Mirror.Security, Adopt: r.Mirror.Adopt, Chain: r.Mirror.Chain}
	child.CreateTarget = true
	child.Source.URL = databaseURL(r.Source.URL, database)
	child.Target.URL = databaseURL(r.Target.URL, r.Mirror.TargetName(database))
	return &child
}

// databaseURL returns the URL of a database of a server, whose URL ends with a slash.
func databaseURL(server, database string) string {
	var text strings.Builder
	text.WriteString(server)
	for _, c := range []byte(database) {
		if isAlphanumeric(c) || strings.IndexByte("-_.~", c) >= 0 {
			text.WriteByte(c)
		} else {
			fmt.Fprintf(&text, "%%%02X", c)
		}
	}
	text.WriteByte('/')
	return text.String()
}

// mirror parses the field `mirror`, which makes the replication r a mirror, if it is there.
func (f *fields) mirror(r *Replication) *Mirror {
	const what = "an object, such as `{}` or `{\"include\": [\"shop-*\"]}`"
	given := f.object("mirror", what)
	if given == nil {
		return nil
	}
	m := &Mirror{
		Include: given.patterns("include"), Exclude: given.patterns("exclude"),
		Security: true, Deleted: MirrorKeeps, Replicators: given.flag("replicators"),
		Adopt: given.flag("adopt"), Chain: given.flag("chain"),
	}
	const often = "hours and minutes, such as `24h`, of at least `1m`"
	if m.Verify, _ = given.text("verify", often); m.Verify != "" && m.VerifyEvery() == 0 {
		given.mustBe("verify", often)
	}
	if _, listed := given.values["include"]; !listed {
		m.Include = []string{"*"}
	} else if len(m.Include) == 0 {
		given.mustBe("include", whatPatterns+": at least one")
	}
	if security := given.boolean("security"); security != nil {
		m.Security = *security
	}
	given.deletion(m)
	given.mirrorPrefix(m, r)
	given.only("include", "exclude", "security", "deleted", "prefix", "replicators", "adopt", "chain", "verify")
	for _, pattern := range m.Include {
		if !m.Replicators && IsReplicatorDatabase(m.TargetName(pattern)) {
			given.fail("include", "parameter `mirror.include` names a replicator database, whose replications the target would run, too: "+
				"this needs `mirror.replicators` true")
		}
	}
	f.checkMirror()
	return m
}

func (f *fields) deletion(m *Mirror) {
	const what = "`keep` or `delete`"
	text, isGiven := f.text("deleted", what)
	switch deletion := MirrorDeletion(text); {
	case !isGiven:
	case deletion == MirrorKeeps, deletion == MirrorDeletes:
		m.Deleted = deletion
	default:
		f.mustBe("deleted", what)
	}
}

var mirrorPrefix = regexp.MustCompile(`^[a-z][a-z0-9_$()+/-]*$`)

func (f *fields) mirrorPrefix(m *Mirror, r *Replication) {
	const what = "the beginning of a name of a database: a lower-case letter, and then lower-case letters, digits and `_$()+-/`"
	m.Prefix, _ = f.text("prefix", what)
	switch {
	case m.Prefix == "" && r.SameServer():
		f.fail("prefix", "parameter `mirror.prefix` is missing: the source of the mirror is its target")
	case m.Prefix != "" && (!mirrorPrefix.MatchString(m.Prefix) || len(m.Prefix) > maxMirrorPattern):
		f.mustBe("prefix", what)
	}
}

const whatPatterns = "an array of patterns of names of databases, in which `*` is any text"

// patterns returns a list of patterns, sorted and without duplicates.
func (f *fields) patterns(name string) []string {
	raw, given := f.values[name]
	if !given {
		return nil
	}
	var literals []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &literals) != nil {
		f.mustBe(name, whatPatterns)
		return nil
	}
	if len(literals) > MaxMirrorPatterns {
		f.fail(name, "parameter `%s` has %d patterns; the most is %d", f.prefix+name, len(literals), MaxMirrorPatterns)
		return nil
	}
	list := make([]string, len(literals))
	for i, literal := range literals {
		if literal[0] != '"' || json.Unmarshal(literal, &list[i]) != nil || list[i] == "" || len(list[i]) > maxMirrorPattern {
			f.mustBe(name, fmt.Sprintf("%s: strings of 1 to %d bytes", whatPatterns, maxMirrorPattern))
			return nil
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// only refuses all fields except those with the given names.
func (f *fields) only(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(names, name) {
			f.fail(name, "parameter `%s` is not known: `%s` may have `%s`",
				f.prefix+name, strings.TrimSuffix(f.prefix, "."), strings.Join(names, "`, `"))
		}
	}
}

// checkMirror refuses the fields that mean nothing for a whole server.
func (f *fields) checkMirror() {
	for _, name := range []string{"doc_ids", "since_seq", "schedule", "every", "timezone"} {
		if raw, given := f.values[name]; given && string(raw) != "null" {
			f.fail(name, "parameter `%s` cannot be used with `mirror`", name)
		}
	}
	if create := f.boolean("create_target"); create != nil && !*create {
		f.fail("create_target", "parameter `create_target` must not be false with `mirror`, which creates databases at the target")
	}
}
