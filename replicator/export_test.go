package replicator

import "maps"

// Reasons are the reasons that have a message.
var Reasons = maps.Keys(reasonTexts)

// FaultTexts and AdviceTexts are the tables of texts.
var (
	FaultTexts  = faultTexts
	AdviceTexts = adviceTexts
)
