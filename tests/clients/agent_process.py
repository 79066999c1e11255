"""Process of an agent for the tests: `python3 agent_process.py TASK`, as agent_process.js beside it."""

import asyncio
import json
import sys

from agent import write_live

task = json.loads(sys.argv[1])
ended = {"ids": [], "isStopped": False, "error": None}


async def main():
    lives = []

    async def produce(live):
        lives.append(live)
        if task.get("steps"):
            live.set_status("thinking")
        for index, part in enumerate(task["parts"]):
            if str(index) in (task.get("steps") or {}):
                live.set_steps(task["steps"][str(index)])
            yield part
            if task.get("everyMs"):
                await asyncio.sleep(task["everyMs"] / 1000)
        if task.get("failsWith"):
            raise RuntimeError(task["failsWith"])

    named = {"conversation_id": task["conversationId"], "key": task["key"], "reply_to_id": task.get("replyToId")}
    try:
        ended["ids"] = await write_live(produce, urls=task["urls"], token=lambda: task["token"], **named)
    except Exception as error:
        ended["error"] = str(error)
    ended["isStopped"] = lives[0].stop.is_set()


asyncio.run(main())
print(json.dumps(ended))
