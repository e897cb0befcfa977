//go:build fdb

package enginetest

import _ "settee/pkg/kv/fdbkv" // the engine of OnCluster
