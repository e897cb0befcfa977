package jobs

import (
	"slices"
	"strings"
	"unicode/utf8"

	"settee/pkg/jsontext"
	"settee/replicator"
)

// People search for jobs by the hosts and databases of their sources and targets (search.go). So these are in an index
// (derivation.go). A job has at most four names.

// maxIndexedName is the most bytes of a name in the index. Longer names are cut.
const maxIndexedName = 255

// The kinds of names, in the order of their keys.
const (
	nameOfDatabase = "database"
	nameOfHost     = "host"
)

var nameKinds = []string{nameOfDatabase, nameOfHost}

// name is the name of a host, without a port, or of a database. It is valid UTF-8 in lower case, and has at most
// maxIndexedName bytes.
type name struct{ kind, text string }

func (n name) compare(other name) int {
	if c := strings.Compare(n.kind, other.kind); c != 0 {
		return c
	}
	return strings.Compare(n.text, other.text)
}

// namesOf returns the names of a replication in the order of the index. It returns the same names for the replication of a
// summary ([Job.summary]), and none for nil.
func namesOf(r *replicator.Replication) (names []name) {
	if r == nil {
		return nil
	}
	for _, e := range []replicator.Endpoint{r.Source, r.Target} {
		host, database := replicator.Endpoint{URL: shownURL(e)}.Names()
		for _, n := range []name{{nameOfHost, host}, {nameOfDatabase, database}} {
			if n.text = indexedText(n.text); n.text != "" {
				names = append(names, n)
			}
		}
	}
	slices.SortFunc(names, name.compare)
	return slices.Compact(names)
}

// indexedText returns a text as a name has it.
func indexedText(text string) string {
	return jsontext.Cut(strings.ToLower(strings.ToValidUTF8(text, string(utf8.RuneError))), maxIndexedName)
}

// firstName returns the first name of a job in the index that begins with a text, in lower case. It is the one by which a
// search finds the job: others of its names may begin with the text, too.
func (j *Job) firstName(lower string) (name, bool) {
	for _, n := range namesOf(j.Args.Replication) {
		if strings.HasPrefix(n.text, lower) {
			return n, true
		}
	}
	return name{}, false
}
