package jobs

import (
	"errors"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// A mirror follows the watch of its source's server, which tells it of databases that were created and deleted:
//
//	("mirror_news", mirror, database) -> (type, token): the latest news of a database that the mirror has not looked at
//	("mirror_news", mirror)           -> int64: changes with news
//
// They go in the transaction that ends the mirror. Who writes news reads with a conflict that the mirror has not ended.
//
// The continuous mirrors of a server are in the index "mirrors", and the databases of a mirror in others (mirrored.go). The first
// run of a mirror adds the server's watch (watched.go).

// The types of news.
const (
	NewsCreated = "created"
	NewsDeleted = "deleted"
	// NewsMissed, of the database "", says that the watch may have missed news: the mirror looks at all databases.
	NewsMissed = "missed"
	// NewsAsked, of the database askedName, says that somebody runs the mirror at once: it looks at all databases, and their jobs
	// compare everything.
	NewsAsked = "asked"
	// NewsVerify, of the database verifyName, says that somebody asks to compare both servers.
	NewsVerify = "verify"
)

// askedName and verifyName are the names in the keys of NewsAsked and NewsVerify, so that other news do not take their place. No
// mirrored database has them.
const (
	askedName  = "\x00"
	verifyName = "\x01"
)

// News says what happened to a database.
type News struct {
	Database, Type string
	value          []byte // of the row, if the mirror has read the news
}

func (s *mirrorRows) mirrorNewsKey(mirror, database string) []byte {
	return s.space.Pack("mirror_news", mirror, database)
}

// newsCounterKey returns the key that changes with news of a mirror.
func (s *mirrorRows) newsCounterKey(mirror string) []byte {
	return s.space.Pack("mirror_news", mirror)
}

// tellIn writes news of a mirror. The token differs from the token of earlier news.
func (s *mirrorRows) tellIn(tx kv.Transaction, mirror, token string, news ...News) {
	for _, n := range news {
		tx.Set(s.mirrorNewsKey(mirror, n.Database), tuple.Tuple{n.Type, token}.Pack())
	}
	tx.Add(s.newsCounterKey(mirror), 1)
}

// parseNews returns the type of news that are stored.
func parseNews(value []byte) (kind string, err error) {
	return kind, rows.Scan("news of a mirror", value, &kind, nil)
}

// clearNewsOf clears the news of all mirrors of a replicator database whose jobs were removed.
func (s *mirrorRows) clearNewsOf(tx kv.Transaction, instance string) {
	key := s.space.Pack("mirror_news", instance+"|")
	tx.ClearRange(kv.PrefixRange(key[:len(key)-1])) // without the byte that ends the string
}

// liveMirror returns a job if it is a mirror that has not ended, and nil otherwise. A job whose args cannot be opened is
// live, and has none.
func (s *mirrorRows) liveMirror(tx kv.ReadTransaction, id string) (*Job, error) {
	job, err := s.read(tx, id)
	switch {
	case errors.Is(err, fdbjobs.ErrSealed):
		return job, nil
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case job.Status == fdbjobs.Finished || !job.IsMirror():
		return nil, nil
	}
	return job, nil
}

// endMirror clears the news of a mirror that has ended, or is no mirror any more. Upkeep drops its databases.
func (s *mirrorRows) endMirror(tx kv.Transaction, job *Job) error {
	tx.ClearRange(rows.Range(s.space.Sub("mirror_news", job.ID)))
	tx.Clear(s.newsCounterKey(job.ID))
	return s.wakeUpkeep(tx)
}

// wakeUpkeep makes upkeep bring the databases of mirrors in line, after this transaction.
func (s *mirrorRows) wakeUpkeep(tx kv.Transaction) error {
	err := s.upkeep.Add(tx, fdbjobs.Spec{ID: mirrorsTask})
	if errors.Is(err, kv.ErrUnreadable) {
		return nil // the transaction changes several mirrors
	}
	return err
}

const mirrorsTask = "databases of mirrors"

// mirrorsAtOnce is the maximum number of mirrors of a server that one transaction reads.
const mirrorsAtOnce = 50
