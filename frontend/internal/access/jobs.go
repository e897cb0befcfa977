package access

import (
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/replicator"
)

// JobUse is what a user does with a job, or with the document that defines one.
type JobUse int

// The uses of jobs.
const (
	// SeeJob is a read of _scheduler/jobs/{id} and the paths below it, of _scheduler/docs/{db}/{doc}, and of the list of
	// a mirror's jobs. An answer to POST _replicate names the job that it collides with to the users who may see it.
	SeeJob JobUse = iota
	// RunJob is POST _scheduler/jobs/{id}/_run and _verify, and _acknowledge of a job.
	RunJob
	// CancelJob is POST _replicate with cancel.
	CancelJob
	// ListJobs is a list of the jobs of one replicator database, or of one user's transient replications.
	ListJobs
	// ListAll is a list of the jobs of all databases and users, and a list in an order other than by owner.
	ListAll
	// SeeFeedError is why a parked job's source cannot be watched with a feed: it names a login of another job.
	SeeFeedError
	// ReadDocument is a read of a whole replication document, with its credentials and its attachments. Members see the
	// rest of it.
	ReadDocument
	// ChangeDocument replaces, pauses or deletes a replication document, and so changes, pauses or removes its job.
	ChangeDocument

	jobUses // the number of uses
)

// standing is what a user is to a job. A user may be several of these.
type standing uint8

const (
	isServerAdmin   standing = 1 << iota
	isDatabaseAdmin          // an administrator of the document's database
	isOwner                  // the document's owner, and a member of its database
	isPoster                 // the user who posted the transient replication
)

// jobRules is the truth table: who may do what with a transient replication, and with the job of a document. A job that a
// mirror has made is used as the mirror is, except that only the mirror is cancelled. One of the standings is enough.
//
//   - An owner sees the job of each of its documents, but does not list them: there is no index of jobs by the owners of
//     documents, and a list of the database has the jobs of other owners.
//   - A document's job is not cancelled: delete the document.
var jobRules = [jobUses]struct{ transient, document standing }{
	SeeJob:         {isServerAdmin | isPoster, isServerAdmin | isDatabaseAdmin | isOwner},
	RunJob:         {isServerAdmin | isPoster, isServerAdmin | isDatabaseAdmin | isOwner},
	CancelJob:      {isServerAdmin | isPoster, 0},
	ListJobs:       {isServerAdmin | isPoster, isServerAdmin | isDatabaseAdmin},
	ListAll:        {isServerAdmin, isServerAdmin},
	SeeFeedError:   {isServerAdmin, isServerAdmin},
	ReadDocument:   {0, isServerAdmin | isDatabaseAdmin | isOwner},
	ChangeDocument: {0, isServerAdmin | isDatabaseAdmin | isOwner},
}

// mayUse reports whether a user may do something with a job. No other code decides this. audienceOfJobs decides which
// requests about jobs a user may make at all.
func mayUse(use JobUse, transient bool, is standing) bool {
	if transient {
		return jobRules[use].transient&is != 0
	}
	return jobRules[use].document&is != 0
}

// audienceOfJobs is audienceOf for paths of the server that are about jobs. The endpoints for users show and change only
// what mayUse admits. The others, among them _active_tasks and the summary, the problems, the rates, the shares and the audit of the
// scheduler, show the jobs of all owners.
func audienceOfJobs(segments []string, reads bool) audience {
	switch {
	case segments[0] == "_replicate" && len(segments) == 1:
		return users
	case segments[0] != "_scheduler" || len(segments) == 1:
		return serverAdmins
	}
	switch below := segments[1:]; below[0] {
	case "check":
		if len(below) == 1 {
			return users
		}
	case "jobs":
		if reads || len(below) == 3 && (below[2] == "_run" || below[2] == "_verify" || below[2] == "_acknowledge") {
			return users
		}
	case "docs":
		if reads && len(below) > 1 {
			return users
		}
	}
	return serverAdmins
}

// JobOwner says whose a job is.
type JobOwner struct {
	// Transient jobs were posted by User, or by an anonymous client if User is nil. A job that a mirror has made is the
	// mirror's.
	Transient bool
	User      *string
	// Database and DocID are the document of another job, or of the mirror that has made it. A damaged job may have no
	// DocID: then it is for administrators.
	Database, DocID string
}

// MayUseJob reports whether the user of a request may do something with a job. If the rights cannot be read, the answer
// is no.
func (g *Guard) MayUseJob(r *http.Request, use JobUse, of JobOwner) bool {
	if of.Transient {
		return mayUse(use, true, standingToPosted(UserOf(r), of.User))
	}
	a, is := g.standingIn(r, of.Database)
	if is != 0 || a == nil {
		return mayUse(use, false, is)
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	// A document that does not exist, or was deleted, has no job, and is not found.
	doc, err := a.db.Get(ctx, of.DocID, docstore.GetOptions{})
	return err == nil && mayUse(use, false, a.standingTo(a.db, doc))
}

// MayUseJobsOf is MayUseJob for the jobs of all documents of a database.
func (g *Guard) MayUseJobsOf(r *http.Request, use JobUse, database string) bool {
	_, is := g.standingIn(r, database)
	return mayUse(use, false, is)
}

// MayUseAllJobs is MayUseJob for the jobs of all databases and users.
func (g *Guard) MayUseAllJobs(r *http.Request, use JobUse) bool {
	return UserOf(r).IsAdmin() && mayUse(use, true, isServerAdmin) && mayUse(use, false, isServerAdmin)
}

// standingIn returns what the user of a request is to all jobs of a database. The rights are nil if the user is not a
// member of the database, and if they were not needed.
func (g *Guard) standingIn(r *http.Request, database string) (*Rights, standing) {
	a := &Rights{user: UserOf(r)}
	switch {
	case a.user.IsAdmin():
		return nil, isServerAdmin
	case g.enter(r, a, database) != nil:
		return nil, 0
	case a.admin:
		return a, isDatabaseAdmin
	case a.permits(members) != nil:
		return nil, 0
	}
	return a, 0
}

// standingToPosted returns what a user is to the replications that a user has posted. A nil poster means an anonymous client.
func standingToPosted(who Identity, poster *string) standing {
	var is standing
	if who.IsAdmin() {
		is |= isServerAdmin
	}
	if poster != nil && !who.IsNobody() && *poster == who.Name {
		is |= isPoster
	}
	return is
}

// standingTo returns what a user who may enter a database is to one of its documents.
func (a *Rights) standingTo(db *docstore.Database, doc *docstore.Document) standing {
	var is standing
	if a.admin {
		is |= isDatabaseAdmin
	}
	if isOpen(db, doc.ID) || isBare(doc) || replicator.OwnedBy(doc.Body, a.user.UserName()) {
		is |= isOwner
	}
	return is
}

// isOpen reports whether a document belongs to all members of its database, because it cannot define a replication.
func isOpen(db *docstore.Database, id string) bool {
	return !replicator.IsReplicatorDatabase(db.Name()) || replicator.IgnoredID(id)
}

// isBare reports whether a document was deleted without leaving anything of it. A deletion may keep members, among them
// credentials: they are still their owner's.
func isBare(doc *docstore.Document) bool {
	return doc.Deleted && len(doc.Body) <= len("{}") && len(doc.Attachments) == 0
}

// mayRead reports whether the user sees all of a document.
func (a *Rights) mayRead(db *docstore.Database, doc *docstore.Document) bool {
	return mayUse(ReadDocument, false, a.standingTo(db, doc))
}

// mayChange reports whether the user may write a successor of a revision. A deleted revision has no owner: its successor
// is a new document.
func (a *Rights) mayChange(db *docstore.Database, before *docstore.Document) bool {
	is := a.standingTo(db, before)
	if before.Deleted {
		is |= isOwner
	}
	return mayUse(ChangeDocument, false, is)
}
