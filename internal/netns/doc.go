// Package netns gives tests network namespaces, which are separate hosts to the network. It needs
// Linux, root, and the programs ip and nft.
package netns
