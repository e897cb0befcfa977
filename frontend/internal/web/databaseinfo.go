package web

import "settee/pkg/docstore"

// DatabaseInfo is the JSON that CouchDB shows of a database: the answer to GET /{db}, and a member of the answer to
// /_dbs_info. The members are in CouchDB's order.
type DatabaseInfo struct {
	InstanceStartTime string   `json:"instance_start_time"`
	Name              string   `json:"db_name"`
	PurgeSeq          string   `json:"purge_seq"`
	UpdateSeq         string   `json:"update_seq"`
	Sizes             sizes    `json:"sizes"`
	Props             struct{} `json:"props"`
	DeletedCount      int64    `json:"doc_del_count"`
	DocCount          int64    `json:"doc_count"`
	DiskFormatVersion int      `json:"disk_format_version"`
	CompactRunning    bool     `json:"compact_running"`
	Cluster           cluster  `json:"cluster"`
	// SecurityDigest is a digest of the security object, for mirrors. Only /_dbs_info has it, and CouchDB does not.
	SecurityDigest string `json:"security_digest,omitempty"`
}

// sizes are in bytes. They are equal, because settee has no files that wait for compaction.
type sizes struct {
	File     int64 `json:"file"`
	External int64 `json:"external"`
	Active   int64 `json:"active"`
}

// cluster always says one shard with one copy, however the store keeps the database.
type cluster struct {
	Q int `json:"q"`
	N int `json:"n"`
	W int `json:"w"`
	R int `json:"r"`
}

// diskFormatVersion is CouchDB 3.5's.
const diskFormatVersion = 8

// NewDatabaseInfo returns the JSON form of a database's information.
func NewDatabaseInfo(info docstore.Info) DatabaseInfo {
	size := info.BodyBytes + info.AttachmentBytes
	return DatabaseInfo{
		InstanceStartTime: info.InstanceStartTime,
		Name:              info.Name,
		PurgeSeq:          docstore.Sequence{}.String(),
		UpdateSeq:         info.UpdateSeq.String(),
		Sizes:             sizes{File: size, External: size, Active: size},
		DeletedCount:      info.DeletedCount,
		DocCount:          info.DocCount,
		DiskFormatVersion: diskFormatVersion,
		Cluster:           cluster{Q: 1, N: 1, W: 1, R: 1},
	}
}
