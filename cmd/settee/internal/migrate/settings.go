package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
)

// Setting is a setting of CouchDB that is not settee's default, or that settee does not take.
type Setting struct {
	Setting string `json:"setting"` // [section] key
	Value   string `json:"value"`   // a secret is masked
	Default string `json:"default"` // of settee
	Note    string `json:"note,omitempty"`
}

func (s Setting) String() string {
	text := fmt.Sprintf("%s = %s", s.Setting, s.Value)
	if s.Default != "" {
		text += fmt.Sprintf(" (settee's default: %s)", s.Default)
	}
	if s.Note != "" {
		text += ": " + s.Note
	}
	return text
}

// settings are a node's settings, by section and key.
type settings map[string]map[string]string

// taken are the sections that the ini file has. Addresses, ports, accounts and certificates of the server itself belong
// to the host and are not among them.
var taken = []string{"replicator", "replicator.shares", "ibm"}

// verifyCertificates is a setting whose default differs from CouchDB's in a way that stops jobs.
const verifyCertificates = "verify_ssl_certificates"

// Cluster is what a CouchDB says about itself.
type Cluster struct {
	Server  string   `json:"server"` // CouchDB
	Version string   `json:"version"`
	UUID    string   `json:"uuid"`
	Nodes   []string `json:"nodes"`
	set     settings
	notes   []Note
}

func (c Cluster) String() string {
	return fmt.Sprintf("%s %s, uuid %s, nodes: %s", c.Server, c.Version, c.UUID, strings.Join(c.Nodes, ", "))
}

// Cluster reads the uuid, the nodes and the settings of CouchDB.
func (m *Mover) Cluster(ctx context.Context) (*Cluster, error) {
	w, err := m.CouchDB.welcome(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Server: m.CouchDB.Name, Version: w.Version, UUID: w.UUID}
	nodes, lost, err := m.CouchDB.membership(ctx)
	if err != nil {
		return nil, err
	}
	c.Nodes = nodes
	for _, node := range nodes {
		if slices.Contains(lost, node) {
			c.note("node %s is not connected: no database can be moved while it may run jobs", node)
			continue
		}
		var set settings
		if err := m.CouchDB.Get(ctx, remote.Path("_node", node, "_config"), &set); err != nil {
			return nil, err
		}
		if uuid := set["couchdb"]["uuid"]; uuid != "" && uuid != c.UUID {
			c.note("node %s has another uuid, %q: checkpoints of its jobs are not found", node, uuid)
		}
		if c.set == nil {
			c.set = set
			continue
		}
		for _, section := range taken {
			if !maps.Equal(c.set[section], set[section]) {
				c.note("[%s] of node %s differs from that of node %s, which is taken", section, node, nodes[0])
			}
		}
	}
	return c, nil
}

func (c *Cluster) note(format string, args ...any) {
	c.notes = append(c.notes, Note{Note: fmt.Sprintf(format, args...)})
}

// values returns the values that settee takes, and what is to be said.
func (c *Cluster) values() (take []config.Value, said []Setting) {
	defaults := new(config.Config).Shown()
	for _, section := range taken {
		for _, key := range slices.Sorted(maps.Keys(c.set[section])) {
			value := config.Value{Section: section, Key: key, Text: c.set[section][key], From: "CouchDB"}
			about := Setting{Setting: "[" + section + "] " + key, Value: value.Text, Default: defaults[section][key]}
			next, warnings, err := new(config.Config).With(config.OriginFile, config.Layer{value})
			var wrong *config.ValueError
			switch {
			case errors.As(err, &wrong):
				about.Value, about.Note = wrong.Shown, "left out: it must be "+wrong.Want
			case err != nil:
				about.Note = "left out: " + err.Error()
			case len(warnings) > 0:
				about.Note = "left out: " + warnings[0].Reason
			case value.Text == about.Default:
				continue
			default:
				about.Value = next.Shown()[section][key]
				take = append(take, value)
			}
			said = append(said, about)
		}
	}
	if c.set["replicator"][verifyCertificates] == "" {
		said = append(said, Setting{
			Setting: "[replicator] " + verifyCertificates, Value: "false", Default: "true",
			Note: "not set. CouchDB accepts any certificate then, and settee does not. Set it to false only if you must",
		})
	}
	return take, said
}

// INI returns a file for settee's nodes. It may have secrets.
func (c *Cluster) INI() []byte {
	take, said := c.values()
	var b bytes.Buffer
	fmt.Fprintf(&b, "; The settings of %s that differ from settee's defaults.\n", c.Server)
	fmt.Fprintf(&b, "[couchdb]\n; The uuid of the cluster, so that jobs continue from its checkpoints.\nuuid = %s\n", c.UUID)
	for _, section := range taken {
		fmt.Fprintf(&b, "\n[%s]\n", section)
		for _, v := range take {
			if v.Section == section {
				fmt.Fprintf(&b, "%s = %s\n", v.Key, v.Text)
			}
		}
		for _, s := range said {
			if key, ok := strings.CutPrefix(s.Setting, "["+section+"] "); ok && s.Note != "" {
				fmt.Fprintf(&b, "; %s: %s\n", key, strings.ReplaceAll(s.Note, "\n", " "))
			}
		}
	}
	return b.Bytes()
}
