package replicator

// MirrorTarget is what the job of a mirror's database knows of its target.
type MirrorTarget struct {
	// Claim says what the mirror may do to the database. It is empty if that is not decided.
	Claim TargetClaim `json:"claim,omitempty"`
	// Instance is the database's instance_start_time if that is when it was created, in seconds since the Unix epoch;
	// otherwise empty.
	Instance string `json:"instance,omitempty"`
}

// TargetClaim is a value of MirrorTarget.Claim.
type TargetClaim string

const (
	// TargetMaking means that the mirror is about to create the database. It is the mirror's if it is empty then.
	TargetMaking TargetClaim = "making"
	// TargetMade means that a mirror has made the database of the same source, or the source of it. The mirror may copy `_security`,
	// and delete the database.
	TargetMade TargetClaim = "made"
	// TargetAdopted means that the mirror only copies documents, as its document allows ([Mirror.Adopt]).
	TargetAdopted TargetClaim = "adopted"
)
