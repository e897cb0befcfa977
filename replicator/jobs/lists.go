package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

// The pages of a list are read in one of four ways, each of which is a function here: by owner, by owner with a text that is
// searched in one owner's jobs, the same in all jobs, or by an index.

// check returns an error if a page cannot be asked for like that.
func (opts ListOptions) check() error {
	if opts.Skip < 0 || opts.Limit < 0 || opts.Limit > MaxLimit ||
		len(opts.After.Owner) > MaxOwnerSize || len(opts.After.ID) > fdbjobs.MaxNameSize {
		return fmt.Errorf("listing replication jobs: skip %d, limit %d or a start key of %d and %d bytes are out of range",
			opts.Skip, opts.Limit, len(opts.After.Owner), len(opts.After.ID))
	}
	return nil
}

// gathering is a page that is being read.
type gathering struct {
	List
	limit int
	after fdbjobs.Position // where reading goes on
	more  bool             // whether there may be more
	keep  func(*Job) bool  // nil: all jobs
}

// gather reads jobs until the page is full, enough jobs were looked at, or there are no more.
func (s *Lists) gather(ctx context.Context, g *gathering, l listing, read pageRead) error {
	for g.more && len(g.Jobs) < g.limit && g.Scanned < maxScanned {
		n := listBatch
		if g.keep == nil {
			n = min(n, g.limit-len(g.Jobs))
		}
		page, err := s.pages.readPage(ctx, read, l, g.after, n)
		if err != nil {
			return err
		}
		g.after, g.more = page.after, page.more
		g.Scanned += page.passed
		for i, job := range page.jobs {
			g.Scanned++
			if g.keep != nil && !g.keep(job) {
				continue
			}
			if g.Jobs = append(g.Jobs, job); len(g.Jobs) == g.limit && i+1 < len(page.jobs) {
				g.after, g.more = page.places[i], true
				break
			}
		}
	}
	return nil
}

// list returns the page.
func (g *gathering) list() List {
	if g.more && g.limit > 0 {
		g.Next = &g.after
	}
	return g.List
}

// byOwner returns a page of a list by owner, or of a search in it.
func (s *Lists) byOwner(ctx context.Context, l listing, opts ListOptions) (List, error) {
	g := gathering{limit: opts.Limit, more: true}
	var err error
	if g.Total, g.after, err = s.begin(ctx, l, opts); err != nil {
		return List{}, err
	}
	switch {
	case opts.Query == "":
		err = s.gather(ctx, &g, l, s.pages.page)
	case opts.Limit > 0:
		err = s.search(ctx, &g, l, opts)
	}
	return g.list(), err
}

// begin returns the total of a list by owner, and after which job a page begins.
func (s *Lists) begin(ctx context.Context, l listing, opts ListOptions) (total int64, after fdbjobs.Position, err error) {
	after = opts.After
	for skip, begun := opts.Skip, false; !begun && err == nil; skip -= skipAtOnce {
		step := ListOptions{After: after, Skip: min(skip, skipAtOnce)}
		err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
			total, after, err = s.pages.beginList(tx.Snapshot(), step, l)
			return err
		})
		begun = skip <= skipAtOnce || after == step.After
	}
	return total, after, err
}

// search looks for a text in the jobs of a list by owner.
func (s *Lists) search(ctx context.Context, g *gathering, l listing, opts ListOptions) error {
	if opts.After == (fdbjobs.Position{}) {
		job, err := s.Get(ctx, opts.Query)
		switch {
		case err == nil && l.has(job):
			g.Jobs, g.Scanned, g.more = []*Job{job}, 1, false
			return nil
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		}
	}
	lower := strings.ToLower(opts.Query)
	g.keep = func(job *Job) bool { return matches(job, lower) }
	if l.owner != "" {
		return s.gather(ctx, g, l, s.pages.page)
	}
	return s.searchAll(ctx, g, l, lower)
}

// searchAll looks for a text, in lower case, in the jobs of all owners: first in the index of names, and if that has found
// none, in the others.
func (s *Lists) searchAll(ctx context.Context, g *gathering, l listing, lower string) error {
	if !isRest(g.after) {
		if err := s.gather(ctx, g, l, s.pages.named(lower)); err != nil || g.more {
			return err
		}
		if g.after, g.more = beforeRest, true; len(g.Jobs) > 0 {
			return nil
		}
	}
	return s.gather(ctx, g, l, s.pages.unnamed(lower))
}

// indexed returns a page of a list in the order of an index, which read reads.
func (s *Lists) indexed(ctx context.Context, l listing, opts ListOptions, read pageRead) (List, error) {
	lower := strings.ToLower(opts.Query)
	g := gathering{limit: opts.Limit, after: opts.After, more: true, keep: func(job *Job) bool {
		return l.has(job) && (lower == "" || matches(job, lower))
	}}
	err := s.gather(ctx, &g, l, read)
	return g.list(), err
}
