// Queries, mutates and subscribes with Apollo Kotlin over OkHttp, and outlives a quiet time: `Main URL ALICE BOB QUIET_MILLIS`.

import com.apollographql.apollo.ApolloClient
import com.apollographql.apollo.api.Adapter
import com.apollographql.apollo.api.AnyAdapter
import com.apollographql.apollo.api.CompiledField
import com.apollographql.apollo.api.CustomScalarAdapters
import com.apollographql.apollo.api.Mutation
import com.apollographql.apollo.api.ObjectType
import com.apollographql.apollo.api.Operation
import com.apollographql.apollo.api.Query
import com.apollographql.apollo.api.Subscription
import com.apollographql.apollo.api.json.JsonReader
import com.apollographql.apollo.api.json.JsonWriter
import com.apollographql.apollo.exception.AutoPersistedQueriesNotSupported
import com.apollographql.apollo.network.websocket.GraphQLWsProtocol
import com.apollographql.apollo.network.websocket.WebSocketNetworkTransport
import java.security.MessageDigest
import kotlin.system.exitProcess
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout

const val VIEWER = "query Viewer { viewer { username } }"
const val START = "mutation Start(\$u: String!) { startDirectConversation(input: {username: \$u}) { conversation { id } } }"
const val SEND = "mutation Send(\$id: ID!) { sendMessage(input: {conversationId: \$id, body: \"after the quiet\"}) { __typename } }"
const val ADDED = "subscription Added(\$id: ID!) { messageAdded(conversationId: \$id) { messageEdge { node { body } } } }"
const val PATIENCE_MILLIS = 30_000L

/** Data of any operation, as the compiler of the library would type it. */
class Fields(val fields: Map<String, Any?>) : Query.Data, Mutation.Data, Subscription.Data {
  /** Value at a path of fields. */
  fun at(vararg path: String): Any? = path.fold(fields as Any?) { value, name -> (value as Map<*, *>)[name] }
}

object FieldsAdapter : Adapter<Fields> {
  @Suppress("UNCHECKED_CAST")
  override fun fromJson(reader: JsonReader, customScalarAdapters: CustomScalarAdapters): Fields =
    Fields(AnyAdapter.fromJson(reader, customScalarAdapters) as Map<String, Any?>)

  override fun toJson(writer: JsonWriter, customScalarAdapters: CustomScalarAdapters, value: Fields) =
    AnyAdapter.toJson(writer, customScalarAdapters, value.fields)
}

abstract class Text(private val text: String, private val variables: Map<String, String>) : Operation<Fields> {
  override fun document() = text
  override fun name() = text.split(' ', '(')[1]
  override fun id() = MessageDigest.getInstance("SHA-256").digest(text.toByteArray()).joinToString("") { "%02x".format(it) }
  override fun adapter() = FieldsAdapter
  override fun serializeVariables(writer: JsonWriter, customScalarAdapters: CustomScalarAdapters, withDefaultValues: Boolean) {
    for ((name, value) in variables) {
      writer.name(name)
      writer.value(value)
    }
  }
  override fun rootField() = CompiledField.Builder("data", ObjectType.Builder(text.substringBefore(' ')).build()).build()
}

class TextQuery(text: String, variables: Map<String, String> = mapOf()) : Text(text, variables), Query<Fields>
class TextMutation(text: String, variables: Map<String, String>) : Text(text, variables), Mutation<Fields>
class TextSubscription(text: String, variables: Map<String, String>) : Text(text, variables), Subscription<Fields>

fun client(url: String, token: String) = builder(url, token).build()

fun builder(url: String, token: String) = ApolloClient.Builder()
  .serverUrl(url)
  .addHttpHeader("authorization", "Bearer $token")
  .subscriptionNetworkTransport(
    WebSocketNetworkTransport.Builder()
      .serverUrl(url.replaceFirst("http", "ws"))
      .wsProtocol(GraphQLWsProtocol(connectionPayload = { mapOf("authorization" to "Bearer $token") }))
      .build()
  )

fun main(arguments: Array<String>): Unit = runBlocking {
  val (url, aliceToken, bobToken, quiet) = arguments
  val (alice, bob) = listOf(aliceToken, bobToken).map { client(url, it) }
  val viewer = alice.query(TextQuery(VIEWER)).execute().dataOrThrow()
  check(viewer.at("viewer", "username") == "alice") { viewer.fields }
  // Without a list of documents it throws, as the page for front ends says.
  val persisting = builder(url, aliceToken).autoPersistedQueries().build()
  val refused = persisting.query(TextQuery(VIEWER)).execute().exception
  check(refused is AutoPersistedQueriesNotSupported) { refused.toString() }
  val started = alice.mutation(TextMutation(START, mapOf("u" to "bob"))).execute().dataOrThrow()
  val variables = mapOf("id" to started.at("startDirectConversation", "conversation", "id") as String)
  val added = async { alice.subscription(TextSubscription(ADDED, variables)).toFlow().first() }
  delay(quiet.toLong())
  check(added.isActive) { "the subscription ended in the quiet: ${added.await().exception}" }
  bob.mutation(TextMutation(SEND, variables)).execute().dataOrThrow()
  val event = withTimeout(PATIENCE_MILLIS) { added.await() }
  check(event.dataOrThrow().at("messageAdded", "messageEdge", "node", "body") == "after the quiet") { event.exception.toString() }
  exitProcess(0)
}
