package shares

// Entitlements divides running jobs among their owners.
var Entitlements = entitlements
