// Package openaiguard lets a model behind an OpenAI-compatible API call guarded tools.
//
// Start with [New] and [Tools.Run]: it asks the model, runs the tool calls of each answer in parallel, every one of
// them through the guard, gives the model what they got, and goes on until the model has no more calls:
//
//	tools, err := openaiguard.New(guard, nil, pay.Tool)
//	ctx = toolguard.WithFacts(ctx, keyderive.Facts{SourceEvent: event.ID})
//	conversation, err := tools.Run(ctx, client, openai.ChatCompletionRequest{Model: model, Messages: messages}, nil)
//
// A program with a loop of its own uses the parts: [Tools.List] for the request, [Collect] for a streamed answer,
// [Tools.Answer] for the calls in it, and [Answers.Delivered] once the model has gone on from there.
//
// Whose call it is and which work it belongs to is taken from the Go context ([toolguard.WithFacts]) and never from a
// message: a conversation that is played again has new tool call ids, and may have other words.
//
// The package translates and decides nothing. It must not know a store, an identity rule or a status.
package openaiguard
