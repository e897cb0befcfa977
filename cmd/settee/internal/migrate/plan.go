package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"settee/cmd/settee/internal/remote"
	"settee/pkg/jsontext"
	"settee/pkg/redact"
	"settee/replicator"
	"settee/replicator/worker"
)

// endpointTimeout bounds the look at the source and the target of one job.
const endpointTimeout = 20 * time.Second

// Planned is a document that would move.
type Planned struct {
	Document string `json:"document"`
	Database string `json:"database"`
	Source   string `json:"source"` // without credentials
	Target   string `json:"target"`
	State    string `json:"state"` // in CouchDB
	// ID is the replication id. It is empty if it is not known.
	ID string `json:"replication_id"`
	// Checkpoint is the sequence from which the job goes on, null if there is none. Start says why.
	Checkpoint json.RawMessage `json:"checkpoint"`
	Start      string          `json:"start,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
	// Refused says why the document stays in CouchDB.
	Refused string `json:"refused,omitempty"`

	runs bool // its job has not ended
}

func (p Planned) String() string {
	text := fmt.Sprintf("%s: %q", p.Database, p.Document)
	if p.Source != "" {
		text += fmt.Sprintf(", %s to %s", p.Source, p.Target)
	}
	text += ", " + p.State
	if p.ID != "" {
		text += ", id " + p.ID
	}
	switch {
	case p.Refused != "":
		text += ": stays at CouchDB: " + p.Refused
	case p.Checkpoint != nil:
		const most = 40 // bytes of a sequence: enough to recognize it
		seq := strings.Trim(string(p.Checkpoint), `"`)
		if len(seq) > most {
			seq = seq[:most] + "..."
		}
		text += ": goes on from " + seq
	default:
		text += ": " + p.Start
	}
	for _, w := range p.Warnings {
		text += "; " + w
	}
	return text
}

// DatabasePlan is where the documents of a database are.
type DatabasePlan struct {
	Database string `json:"database"`
	// CouchDB is the number of replication documents that are live in CouchDB, and States has them by state. Refused is
	// how many of them would stay.
	CouchDB int            `json:"couchdb"`
	States  map[string]int `json:"states"`
	Refused int            `json:"refused"`
	Moved   int            `json:"moved"`   // documents that CouchDB has deleted because they moved
	Settee  int            `json:"settee"`  // live in settee
	Nowhere int            `json:"nowhere"` // live at neither server, because a move or a way back was interrupted
	// Elsewhere is the number of documents that have moved to a database of another store. No move is possible then, and
	// Advice says what to do.
	Elsewhere int    `json:"elsewhere"`
	Advice    string `json:"advice,omitempty"`
	Left      int    `json:"left"`   // live in CouchDB, and not selected. CouchDB does not count them
	Paused    bool   `json:"paused"` // a way back was interrupted
}

func (d DatabasePlan) String() string {
	text := fmt.Sprintf("%s: %s at CouchDB", d.Database, counted(d.CouchDB, "job"))
	var states []string
	for _, state := range slices.Sorted(maps.Keys(d.States)) {
		states = append(states, fmt.Sprintf("%d %s", d.States[state], state))
	}
	if states != nil {
		text += " (" + strings.Join(states, ", ") + ")"
	}
	if d.Refused > 0 {
		text += fmt.Sprintf(", %d of them would stay", d.Refused)
	}
	if d.Left > 0 {
		text += fmt.Sprintf(", and %d others that were not selected", d.Left)
	}
	text += fmt.Sprintf("; %d moved from there; %d at settee", d.Moved, d.Settee)
	if d.Moved > 0 && d.CouchDB > 0 {
		text += "; those at CouchDB were not selected, were kept, or are newer than the move"
	}
	if d.Nowhere > 0 {
		text += fmt.Sprintf("; %s run nowhere, because a move was interrupted: run --move or --back again", counted(d.Nowhere, "job"))
	}
	if d.Elsewhere > 0 {
		text += "; no move is possible: " + d.Advice
	}
	if d.Paused {
		text += "; the database is paused in settee, because a way back was interrupted: run --move or --back again"
	}
	return text
}

// Transient is a job of CouchDB that was posted to _replicate.
type Transient struct {
	Transient string `json:"transient"` // its replication id
	Source    string `json:"source"`
	Target    string `json:"target"`
}

func (t Transient) String() string {
	return fmt.Sprintf(`job %s of _replicate, %s to %s, is not moved: post {"replication_id":%q,"cancel":true} to CouchDB's _replicate, and its body to settee's`,
		t.Transient, t.Source, t.Target, t.Transient)
}

// Plan tells what a move of portions of databases would do, and changes nothing. cfg has the settings for a look at the
// endpoints.
func (m *Mover) Plan(ctx context.Context, c *Cluster, databases []string, portion Portion, cfg worker.Config) (refused int, err error) {
	events := []Event{*c}
	ours, err := m.Settee.welcome(ctx)
	if err != nil {
		return 0, err
	}
	events = append(events, Cluster{Server: m.Settee.Name, Version: ours.Vendor.Version, UUID: ours.UUID, Nodes: []string{m.Settee.Host()}})
	if ours.UUID != c.UUID {
		events = append(events, Note{Note: fmt.Sprintf("the uuids differ, so that no checkpoint would be found: set [couchdb] uuid = %s for settee's nodes first", c.UUID)})
	}
	for _, n := range c.notes {
		events = append(events, n)
	}
	_, said := c.values()
	for _, s := range said {
		events = append(events, s)
	}
	for _, e := range events {
		if err := m.Tell(e); err != nil {
			return 0, err
		}
	}
	cfg.ServerUUID, cfg.RetriesPerRequest, cfg.Shared = c.UUID, 0, &worker.Shared{}
	first := map[string]string{}
	for _, db := range databases {
		p := planner{transfer: &transfer{Mover: m, from: m.CouchDB, to: m.Settee, db: db, portion: portion}, cfg: cfg, first: first}
		if err := p.plan(ctx); err != nil {
			return refused, fmt.Errorf("planning for the database %q: %w", db, err)
		}
		refused += p.sum.Refused + p.sum.Elsewhere
	}
	return refused, m.CouchDB.pagesOfJobs(ctx, "/_scheduler/jobs", "", func(job listed) error {
		if job.DocID != "" || job.ID == nil {
			return nil
		}
		return m.Tell(Transient{*job.ID, job.Source, job.Target})
	})
}

// planner plans for a database.
type planner struct {
	*transfer
	cfg worker.Config
	sum DatabasePlan
	// first has the first document of each replication id, of all databases.
	first map[string]string
}

func (p *planner) plan(ctx context.Context) error {
	p.sum = DatabasePlan{Database: p.db, States: map[string]int{}}
	var err error
	if p.total, err = p.from.documents(ctx, p.db); err != nil {
		return err
	}
	if err := p.looked(); err != nil {
		return err
	}
	exists, err := p.to.has(ctx, p.db)
	if err != nil {
		return err
	}
	if exists {
		if err := p.to.pages(ctx, p.db, func(rows []row) error {
			for _, r := range rows {
				if r.job() && !r.Deleted {
					p.sum.Settee++
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	stranded, err := p.stranded(ctx)
	if err != nil {
		return err
	}
	p.sum.Nowhere, p.sum.Paused, p.sum.Elsewhere = stranded.Nowhere, stranded.Paused, stranded.Elsewhere
	if stranded.Elsewhere > 0 {
		p.sum.Advice = stranded.elsewhere()
	}
	if err := p.from.pages(ctx, p.db, func(rows []row) error { return p.page(ctx, rows) }); err != nil {
		return err
	}
	return p.Tell(p.sum)
}

// page plans for the rows of a page.
func (p *planner) page(ctx context.Context, rows []row) error {
	taken := p.sum.CouchDB
	rows = slices.DeleteFunc(rows, func(r row) bool {
		if !r.job() {
			return true
		}
		if r.Deleted {
			return false
		}
		// A document that is deleted meanwhile counts as selected.
		if p.portion.rest(taken, 1) == 0 || !p.portion.selects(r.ID) {
			p.sum.Left++
			return true
		}
		taken++
		return false
	})
	there, err := p.to.look(ctx, p.db, ids(rows))
	if err != nil {
		return err
	}
	byID := map[string]row{}
	for _, r := range rows {
		byID[r.ID] = r
	}
	stays := func(doc *document) bool {
		if doc.moved() != nil {
			p.sum.Moved++
			return false
		}
		return !doc.deleted
	}
	return p.from.fetchGroups(ctx, p.db, rows, stays, func(group []*document) error {
		plans := make([]Planned, len(group))
		if err := inParallel(ctx, len(group), func(ctx context.Context, i int) (err error) {
			id := group[i].id
			plans[i], err = p.document(ctx, group[i], byID[id], there[id])
			return err
		}); err != nil {
			return err
		}
		for _, planned := range plans {
			p.sum.CouchDB++
			p.sum.States[planned.State]++
			if planned.Refused != "" {
				p.sum.Refused++
			}
			p.noteID(&planned)
			if err := p.Tell(planned); err != nil {
				return err
			}
		}
		return p.looked()
	})
}

// noteID warns of a document that would run, and whose replication id an earlier one has.
func (p *planner) noteID(planned *Planned) {
	if !planned.runs || planned.ID == "" || planned.Refused != "" {
		return
	}
	name := fmt.Sprintf("%q of %s", planned.Document, planned.Database)
	if other, taken := p.first[planned.ID]; taken {
		planned.Warnings = append(planned.Warnings, "document "+other+" has the same replication id: the job of one of them fails")
		return
	}
	p.first[planned.ID] = name
}

// looked reports how many documents were looked at.
func (p *planner) looked() error {
	if p.Report == nil {
		return nil
	}
	return p.Report(Progress{Database: p.db, Plan: true, Looked: p.sum.CouchDB, Steps: int64(max(0, p.total-p.sum.CouchDB-p.sum.Left))})
}

// document plans for a live document.
func (p *planner) document(ctx context.Context, doc *document, r row, there presence) (Planned, error) {
	plan := Planned{Document: doc.id, Database: p.db, State: "not known"}
	if err := p.stateOf(ctx, doc, &plan); err != nil {
		return plan, err
	}
	warnings, refused, err := p.to.check(ctx, doc)
	if err != nil {
		return plan, err
	}
	two, err := p.ambiguous(ctx, r, there)
	if err != nil {
		return plan, err
	}
	plan.Warnings, plan.Refused = append(plan.Warnings, warnings...), cmp.Or(two, refused)
	text, err := jsontext.Encode(doc.body)
	if err != nil {
		return plan, err
	}
	parsed, _ := replicator.ParseText(doc.id, text, replicator.ParseOptions{}) // the check has told the error
	if parsed == nil || parsed.Replication == nil {
		plan.Start = "moves with its state"
		return plan, nil
	}
	rep := parsed.Replication
	plan.Source, plan.Target = rep.Source.String(), rep.Target.String()
	if parsed.State.Terminal() {
		plan.Start = "moves with its state, and does not run again"
		return plan, nil
	}
	plan.runs = true
	theirs := plan.ID
	p.find(ctx, rep, &plan)
	if theirs != "" && plan.ID != "" && plan.ID != theirs {
		plan.Warnings = append(plan.Warnings, "CouchDB's replication id is another one: "+theirs)
	}
	return plan, nil
}

// stateOf sets the state and the replication id that CouchDB tells.
func (p *planner) stateOf(ctx context.Context, doc *document, plan *Planned) error {
	var state string
	_ = json.Unmarshal(doc.body["_replication_state"], &state) // another value is not known
	if replicator.DocumentState(state).Terminal() {
		plan.State = state
		var reason string
		if json.Unmarshal(doc.body["_replication_state_reason"], &reason) == nil && reason != "" {
			plan.Warnings = append(plan.Warnings, "CouchDB says: "+redact.Text(reason))
		}
		return nil
	}
	var job struct {
		State string
		ID    *string
	}
	err := p.from.Get(ctx, "/_scheduler/docs"+remote.Path(p.db, doc.id), &job)
	switch {
	case remote.IsStatus(err, http.StatusNotFound):
		return nil // CouchDB has not seen it yet
	case err != nil:
		return err
	}
	plan.State = cmp.Or(job.State, plan.State) // a document that CouchDB is still reading has none
	if job.ID != nil {
		plan.ID = *job.ID
	}
	return nil
}

// find sets the replication id and the checkpoint that settee would have. What it cannot reach, it says.
func (p *planner) find(ctx context.Context, rep *replicator.Replication, plan *Planned) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	once := *rep
	once.RetriesPerRequest = nil // the configuration says 0
	found, err := worker.FindBeginning(ctx, &once, p.cfg)
	if found.ID.Base != "" {
		plan.ID = found.ID.String()
	}
	switch {
	case err != nil:
		plan.Start = "its checkpoint is not known: " + rep.Secrets().Text(err.Error())
	case found.Seq == nil:
		plan.Start = "starts from the beginning, because " + found.Missing
	default:
		plan.Checkpoint = found.Seq
	}
}
