// Package netns gives tests network namespaces: hosts of their own, as far as the network goes. It needs Linux, root,
// and the programs ip and nft.
package netns
