package worker

import (
	"sync/atomic"

	"settee/replicator"
)

// pipeline bounds the steps that the batches of a run go through, and has what the run learns about its servers there.
type pipeline struct {
	steps           steps
	unasked         unasked       // for batches of changes that were there before
	unaskedLive     unasked       // for batches of a live feed
	asking, writing sizeLimit     // for _revs_diff and _bulk_docs
	large           chan struct{} // one element per large document in memory

	noBulkGet atomic.Bool  // the source has no working _bulk_get
	noInline  atomic.Bool  // its _bulk_get does not return attachments
	bulkPause bulkPause    // after failed _bulk_get requests
	failing   failures     // of single revisions
	stubPause bulkPause    // after failed ones to the target, for checkStubs
	inFlight  atomic.Int32 // batches being copied
}

func (p *pipeline) init(s *settings, job *Job) {
	p.steps = newSteps(s)
	p.unasked.most, p.unaskedLive.most = maxUnasked, maxUnaskedLive
	p.asking.most, p.writing.most = maxPortion, maxPortion
	p.large = make(chan struct{}, largeAtATime)
	if job.Woken {
		p.unasked.resume(job.Lacking)
		p.unaskedLive.resume(job.Lacking)
	}
}

// learned returns what the run has learned for a later run: from the live feed, or if that has not asked, from the one that
// ended.
func (p *pipeline) learned() replicator.Lacking {
	live, before := p.unaskedLive.learned(), p.unasked.learned()
	if live != (replicator.Lacking{}) {
		return live
	}
	most := p.unaskedLive.most
	return replicator.Lacking{
		Lacked:  min(max(before.Lacked, -most), most),
		Unasked: min(max(0, unaskedFor*before.Lacked), most),
	}
}
