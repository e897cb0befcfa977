// Package budget shares a number of bytes among the clients of a server.
//
// A request has an [Account]. It takes bytes before it uses memory (or disk), and gives them back afterwards. The sum over
// all accounts never exceeds the limit, except that an account may have more than the limit while no other one has any: a
// request that is larger than the whole budget is served alone.
//
// When bytes are missing, the caller waits. Callers whose size a client decides leave a quarter of the budget to the others,
// and wait in a queue of their own ([Share]); callers that can do without leave half of it. Bytes that come back go to clients in turns: to the request that has waited
// longest of the client whose turn it is. A client is a text, such as the network of an address.
//
// An account whose request waits for its client, to send more or to take more, is stalled. After a grace period a stalled
// account makes room: of the client whose stalled accounts have the most bytes, the one that has stalled longest is
// evicted. Its owner ends the request and closes the account.
//
// There is no goroutine. No lock is held while a function of the caller runs.
package budget
