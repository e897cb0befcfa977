//go:build fdb

package peers

// This engine needs FoundationDB's C library.
import _ "settee/pkg/kv/fdbkv" // opens the URLs of clusters
