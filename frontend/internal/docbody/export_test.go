package docbody

// Kept reports whether all documents are in memory.
func (b *Bulk) Kept() bool { return b.keep }
