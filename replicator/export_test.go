package replicator

import "maps"

// Reasons are the reasons that have a message.
var Reasons = maps.Keys(reasonTexts)
